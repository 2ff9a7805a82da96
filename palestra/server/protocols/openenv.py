"""Serve each environment over OpenEnv's protocol: `/openenv/ID/reset`, `step` and so on, and the WebSocket `ws`.

OpenEnv's own client works unchanged. These are the main differences from OpenEnv's server: over plain HTTP, an episode
continues across requests and is identified by `episode_id`, which may be omitted for one episode per client; a step
that is retried with the same `request_id` is executed only once; and the seed passed to `reset` determines the episode.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Annotated, Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Meta, Struct

from palestra import __version__, registry
from palestra.remote.protocol import JSON, Seconds, Status, fault
from palestra.server.app import App, deny
from palestra.server.auth import Client
from palestra.server.dispatcher import Dispatcher
from palestra.server.protocols import env_tools
from palestra.server.protocols.openenv_messages import (
    SCHEMA,
    parse_action,
    parse_reset,
    state_response,
    step_response,
)
from palestra.server.protocols.openenv_pages import docs_page, openapi_document, web_page
from palestra.server.protocols.openenv_socket import serve_openenv_websocket
from palestra.server.protocols.openenv_tools import is_tool_action, tool_response, with_data
from palestra.server.protocols.protocol_session import (
    MAX_ENDED,
    ProtocolSession,
    error_details,
    read_body,
    send_error,
)
from palestra.server.request import HttpRequest, Receive, RequestError, Scope, Send, not_allowed
from palestra.server.responses import draining
from palestra.server.settings import Settings

MAX_REQUEST_IDS = 256  # maximum number of request ids stored per episode
Id = Annotated[str, Meta(max_length=255)]


class StepBody(Struct, kw_only=True):
    action: dict[str, Any]
    timeout_s: Seconds | None = None
    request_id: Id | None = None
    episode_id: Id | None = None


class CloseBody(Struct, kw_only=True):
    episode_id: Id | None = None


class OpenEnvEpisode(ProtocolSession):
    """Session for an episode that is played over HTTP."""

    def __init__(self, dispatcher: Dispatcher, owner: str, episode_id: str, on_end: Callable[[object], None]) -> None:
        super().__init__(dispatcher, owner, on_end=on_end)
        self.episode_id = episode_id
        self.request_ids: deque[str] = deque(maxlen=MAX_REQUEST_IDS)  # ids of the latest steps, newest last

    def check_request_id(self, request_id: str) -> None:
        """Raise RequestError if a step with this id was executed but its response is no longer stored."""
        session = self.dispatcher.sessions.find(self.session, self.owner)
        if request_id in self.request_ids and session is not None and session.last_id != request_id:
            raise RequestError(fault("out_of_order", "this request_id belongs to an earlier step in the episode"))


Key = tuple[str, str, str]  # owner, environment, episode id
_NOT_EXECUTED = frozenset({"capacity", "rate_limited", "session_busy"})


class OpenEnv:
    prefix = "/openenv/"

    def __init__(self, settings: Settings) -> None:
        self._envs = frozenset(settings.envs)
        self._episodes: dict[Key, OpenEnvEpisode] = {}
        # (owner, env) -> id of the episode that the client started without an id.
        self._unnamed: dict[tuple[str, str], str] = {}
        self._ended: OrderedDict[Key, str] = OrderedDict()  # session names of ended episodes
        self._tool_sessions: dict[tuple[str, str], OpenEnvEpisode] = {}  # keyed by owner and session id
        self._routes: dict[str, tuple[str, Callable[[Dispatcher, HttpRequest, str], Awaitable[Any]]]] = {
            "reset": ("POST", self._reset),
            "step": ("POST", self._step),
            "close": ("POST", self._close),
            "state": ("GET", self._state),
            "metadata": ("GET", self._metadata),
            "schema": ("GET", self._schema),
            "health": ("GET", self._health),
            "mcp": ("POST", self._mcp),
            "openapi.json": ("GET", self._openapi),
        }
        self._pages = {"docs": docs_page, "web": web_page}

    async def close(self) -> None:
        self._episodes.clear()
        self._unnamed.clear()
        self._tool_sessions.clear()

    async def http(self, app: App, request: HttpRequest) -> None:
        code = "ok"
        try:
            env, route = self._split_path(request.path)
            if route not in self._routes and route not in self._pages:
                message = f"no such path; OpenEnv's protocol supports {', '.join([*self._routes, *self._pages])} and ws"
                raise RequestError(fault("not_found", message))
            method, handler = self._routes.get(route, ("GET", None))
            if request.method != method:
                raise RequestError(not_allowed(method))
            if handler is None:
                content = self._pages[route](env, _description(env)).encode()
                kind = "text/html; charset=utf-8"
            else:
                content, kind = msgspec.json.encode(await handler(app.dispatcher, request, env)), JSON
        except RequestError as err:
            code = err.fault.code
            body = {"detail": err.fault.message, "code": code, **error_details(err.fault)}
            await send_error(request, err.fault, body)
        else:
            await request.send(200, content, content_type=kind)
        app.dispatcher.stats.requests["openenv", code] += 1

    async def websocket(self, app: App, scope: Scope, receive: Receive, send: Send, client: Client) -> None:
        try:
            env, route = self._split_path(scope["path"])
            if route != "ws":
                raise RequestError(fault("not_found", "the WebSocket is at /openenv/ID/ws"))
            if app.dispatcher.draining:
                raise RequestError(draining())
        except RequestError as err:
            await receive()
            await deny(scope, send, err.fault)
            return
        app.websockets += 1
        try:
            await serve_openenv_websocket(app.dispatcher, env, client.owner, receive, send)
        finally:
            app.websockets -= 1

    def _split_path(self, path: str) -> tuple[str, str]:
        """Split a path into the environment id and the route."""
        rest = path[len(self.prefix) :]
        env, _, route = (rest, "", "") if rest in self._envs else rest.rpartition("/")
        if env not in self._envs:
            message = f"{env[:100]!r} is not served here. GET /v1/envs lists the served environments."
            raise RequestError(fault("unknown_env", message))
        return env, route

    # Episodes over HTTP.

    def _key(self, owner: str, env: str, episode_id: str) -> Key:
        """Return the key for an episode. An empty id refers to the episode that the client started without an id."""
        return owner, env, episode_id or self._unnamed.get((owner, env), "")

    async def _find(self, dispatcher: Dispatcher, key: Key) -> OpenEnvEpisode:
        episode = self._episodes.get(key)
        if episode is not None:
            return episode
        session = self._ended.get(key)
        if session is not None:
            # Raises an error with the reason why the session ended.
            await ProtocolSession(dispatcher, key[0]).request(Status(session=session))
        raise RequestError(fault("reset_needed", "no such episode; call reset to start one"))

    def _forget(self, key: Key) -> None:
        owner, env, episode_id = key
        episode = self._episodes.pop(key, None)
        keys = [key]
        if self._unnamed.get((owner, env)) == episode_id:
            del self._unnamed[owner, env]
            keys.append((owner, env, ""))
        if episode is not None and episode.session:
            for ended in keys:
                self._ended[ended] = episode.session
            while len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)

    async def _reset(self, dispatcher: Dispatcher, request: HttpRequest, env: str) -> Any:
        fields = parse_reset(await read_body(request, dict[str, Any]))
        owner = request.client.owner
        key = self._key(owner, env, fields.episode_id)
        episode = self._episodes.get(key)
        if episode is None:
            key = (owner, env, fields.episode_id or token_hex(16))
            if not fields.episode_id:
                self._unnamed[owner, env] = key[2]
            episode = self._episodes[key] = OpenEnvEpisode(dispatcher, owner, key[2], lambda _: self._forget(key))
        with episode.exclusive():
            try:
                await episode.ensure_open(env)
                result = await episode.reset(fields.seed, fields.options, request_id=_header_id(request))
            except RequestError:
                if not episode.session:  # no session was opened, or the previous one was lost
                    self._forget(key)
                raise
            episode.request_ids.clear()
        return step_response(result, episode.episode_id)

    async def _step(self, dispatcher: Dispatcher, request: HttpRequest, env: str) -> Any:
        body: StepBody = await read_body(request, StepBody)
        tools = is_tool_action(body.action)
        action = "" if tools else parse_action(body.action)
        episode_id = body.episode_id or _query_episode_id(request)
        request_id = body.request_id or _header_id(request)
        episode = await self._find(dispatcher, self._key(request.client.owner, env, episode_id))
        if tools:
            return await tool_response(episode, env, body.action, request_id)
        episode.check_request_id(request_id)
        is_new = request_id != "" and request_id not in episode.request_ids
        if is_new:
            episode.request_ids.append(request_id)
        try:
            result = await episode.step(action, request_id=request_id, timeout=body.timeout_s)
        except RequestError as err:
            if is_new and err.fault.code in _NOT_EXECUTED:
                episode.request_ids.remove(request_id)
            raise
        return step_response(result, episode.episode_id)

    async def _close(self, dispatcher: Dispatcher, request: HttpRequest, env: str) -> Any:  # noqa: ARG002
        body: CloseBody = await read_body(request, CloseBody)
        key = self._key(request.client.owner, env, body.episode_id or "")
        episode = self._episodes.get(key)
        self._forget(key)
        return {"closed": episode is not None and episode.close()}

    async def _state(self, dispatcher: Dispatcher, request: HttpRequest, env: str) -> Any:  # noqa: ARG002
        episode = self._episodes.get(self._key(request.client.owner, env, _query_episode_id(request)))
        return state_response(episode, None if episode is None else episode.episode_id)

    async def _metadata(self, dispatcher: Dispatcher, request: HttpRequest, env: str) -> Any:  # noqa: ARG002
        return {
            "name": env,
            "description": _description(env),
            "version": __version__,
            "author": None,
            "documentation_url": None,
            "readme_content": None,
        }

    async def _schema(self, dispatcher: Dispatcher, request: HttpRequest, env: str) -> Any:  # noqa: ARG002
        return SCHEMA

    async def _openapi(self, dispatcher: Dispatcher, request: HttpRequest, env: str) -> Any:  # noqa: ARG002
        return openapi_document(env, _description(env))

    async def _health(self, dispatcher: Dispatcher, request: HttpRequest, env: str) -> Any:  # noqa: ARG002
        return {"status": "healthy"}

    # Tools over HTTP.

    async def _mcp(self, dispatcher: Dispatcher, request: HttpRequest, env: str) -> Any:
        request_id = None
        try:
            message = env_tools.decode_rpc(await request.body())
            request_id = message.get("id")
            result = await self._rpc(dispatcher, request.client.owner, env, message)
            return env_tools.rpc_result(request_id, result)
        except env_tools.RpcError as err:
            return env_tools.rpc_error(request_id, *err.args)

    async def _rpc(self, dispatcher: Dispatcher, owner: str, env: str, message: dict[str, Any]) -> Any:
        method, params = message.get("method"), message.get("params", {})
        if not isinstance(params, dict):
            raise env_tools.RpcError(env_tools.INVALID_PARAMS, "params must be an object")
        if method == "tools/list":
            return {"tools": env_tools.TOOLS}
        if method == "openenv/session/create":
            return await self._create_tool_session(dispatcher, owner, env)
        session = self._tool_sessions.get((owner, str(params.get("session_id"))))
        if method == "openenv/session/close":
            if session is None:
                raise env_tools.RpcError(env_tools.INVALID_PARAMS, "no such session_id")
            self._drop_tool_session(owner, session.episode_id)
            return {"session_id": session.episode_id, "closed": session.close()}
        if method != "tools/call":
            raise env_tools.RpcError(env_tools.METHOD_NOT_FOUND, f"unknown method {method!r}")
        if session is None:
            message_text = "session_id is missing or unknown; openenv/session/create returns one"
            raise env_tools.RpcError(env_tools.INVALID_PARAMS, message_text)
        result = await env_tools.call_tool(session, env, params.get("name"), params.get("arguments"), "")
        if params.get("name") == "close":  # this tool does not trigger `on_end`
            self._drop_tool_session(owner, session.episode_id)
        return with_data(result)

    async def _create_tool_session(self, dispatcher: Dispatcher, owner: str, env: str) -> dict[str, Any]:
        name = token_hex(16)
        session = OpenEnvEpisode(dispatcher, owner, name, lambda _: self._drop_tool_session(owner, name))
        try:
            await session.ensure_open(env)
        except RequestError as err:
            raise env_tools.RpcError(-32000, err.fault.message) from None
        if session.is_open:
            self._tool_sessions[owner, name] = session
        return {"session_id": name}

    def _drop_tool_session(self, owner: str, name: str) -> None:
        self._tool_sessions.pop((owner, name), None)


def _description(env: str) -> str:
    return registry.get_spec(env).summary or "a text environment"


def _header_id(request: HttpRequest) -> str:
    return request.client.request_id.decode("latin-1")


def _query_episode_id(request: HttpRequest) -> str:
    return parse_qs(request.query.decode("latin-1")).get("episode_id", [""])[0][:255]

"""OpenEnv's protocol for any environment: `/openenv/ID/reset`, `step`, `state` and the rest, and the socket at `ws`.

OpenEnv's own client runs against it unchanged. What it does otherwise than OpenEnv's server: over plain HTTP an episode
goes on from request to request, named by `episode_id`, or else the client's one unnamed episode; a step that is asked
again with its `request_id` is not taken twice; seeds count.
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
from palestra.server.auth import Visitor
from palestra.server.dispatcher import Desk
from palestra.server.protocols import toolbox
from palestra.server.protocols.openenv_socket import converse
from palestra.server.protocols.openenv_wire import SCHEMA, action_of, reset_of, result_of
from palestra.server.protocols.protocol_session import REMEMBERED, Seat, read_body, refuse, told
from palestra.server.request import HttpRequest, Receive, Refused, Scope, Send
from palestra.server.settings import Settings

SEEN = 256  # request ids of one episode that are known again
Name = Annotated[str, Meta(max_length=255)]


class StepBody(Struct, kw_only=True):
    action: dict[str, Any]
    timeout_s: Seconds | None = None
    request_id: Name | None = None
    episode_id: Name | None = None


class CloseBody(Struct, kw_only=True):
    episode_id: Name | None = None


class Episode(Seat):
    """One episode over HTTP."""

    def __init__(self, desk: Desk, owner: str, name: str, ended: Callable[[object], None]) -> None:
        super().__init__(desk, owner, ended=ended)
        self.name = name
        self.asked: deque[str] = deque(maxlen=SEEN)  # request ids, the latest last

    def check(self, name: str) -> None:
        """Refuse a request id whose answer is no longer kept: it must not be a step again."""
        session = self.desk.sessions.find(self.session, self.owner)
        if name in self.asked and session is not None and session.last_id != name:
            raise Refused(fault("out_of_order", "that request_id was used for an earlier step of this episode"))


Key = tuple[str, str, str]  # whose, which environment, which episode
_NOT_COUNTED = frozenset({"capacity", "rate_limited", "session_busy"})


class OpenEnv:
    prefix = "/openenv/"

    def __init__(self, settings: Settings) -> None:
        self._envs = frozenset(settings.envs)
        self._episodes: dict[Key, Episode] = {}
        self._unnamed: dict[tuple[str, str], str] = {}  # whose, which environment -> the episode nobody gave a name
        self._ended: OrderedDict[Key, str] = OrderedDict()  # -> the session that was theirs
        self._tooled: dict[tuple[str, str], Episode] = {}  # by whose, and the id that `openenv/session/create` told
        self._routes: dict[str, tuple[str, Callable[[Desk, HttpRequest, str], Awaitable[Any]]]] = {
            "reset": ("POST", self._reset),
            "step": ("POST", self._step),
            "close": ("POST", self._close),
            "state": ("GET", self._state),
            "metadata": ("GET", self._metadata),
            "schema": ("GET", self._schema),
            "health": ("GET", self._health),
            "mcp": ("POST", self._mcp),
        }

    async def close(self) -> None:
        self._episodes.clear()
        self._unnamed.clear()
        self._tooled.clear()

    async def http(self, app: App, request: HttpRequest) -> None:
        code = "ok"
        try:
            env, what = self._address(request.path)
            if what not in self._routes:
                raise Refused(fault("not_found", f"OpenEnv's protocol has {', '.join(self._routes)} and ws"))
            method, serve = self._routes[what]
            if request.method != method:
                raise Refused(fault("not_allowed", f"use {method}"))
            answer = await serve(app.desk, request, env)
        except Refused as err:
            code = err.fault.code
            await refuse(request, err.fault, {"detail": err.fault.message, "code": code, **told(err.fault)})
        else:
            await request.answer(200, msgspec.json.encode(answer), kind=JSON)
        app.desk.stats.requests["openenv", code] += 1

    async def socket(self, app: App, scope: Scope, receive: Receive, send: Send, visitor: Visitor) -> None:
        try:
            env, what = self._address(scope["path"])
            if what != "ws":
                raise Refused(fault("not_found", "the socket is at /openenv/ID/ws"))
            if app.desk.draining:
                raise Refused(fault("draining", "this server is about to stop"))
        except Refused as err:
            await receive()
            await deny(scope, send, err.fault)
            return
        app.sockets += 1
        try:
            await converse(app.desk, env, visitor.owner, receive, send)
        finally:
            app.sockets -= 1

    def _address(self, path: str) -> tuple[str, str]:
        env, _, what = path[len(self.prefix) :].partition("/")
        if env not in self._envs:
            raise Refused(fault("unknown_env", f"{env[:100]!r} is not served here. GET /v1/envs lists what is."))
        return env, what

    # Episodes over HTTP.

    def _key(self, owner: str, env: str, name: str) -> Key:
        """`name` may be empty: then it is the one episode that this client has not named."""
        return owner, env, name or self._unnamed.get((owner, env), "")

    async def _find(self, desk: Desk, key: Key) -> Episode:
        episode = self._episodes.get(key)
        if episode is not None:
            return episode
        session = self._ended.get(key)
        if session is not None:
            await Seat(desk, key[0]).ask(Status(session=session))  # raises: it says how it ended
        raise Refused(fault("reset_needed", "there is no such episode; reset begins one"))

    def _forget(self, key: Key) -> None:
        owner, env, name = key
        episode = self._episodes.pop(key, None)
        keys = [key]
        if self._unnamed.get((owner, env)) == name:
            del self._unnamed[owner, env]
            keys.append((owner, env, ""))
        if episode is not None and episode.session:
            for gone in keys:
                self._ended[gone] = episode.session
            while len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)

    async def _reset(self, desk: Desk, request: HttpRequest, env: str) -> Any:
        asked = reset_of(await read_body(request, dict[str, Any]))
        owner = request.visitor.owner
        key = self._key(owner, env, asked.episode_id)
        episode = self._episodes.get(key)
        if episode is None:
            key = (owner, env, asked.episode_id or token_hex(16))
            if not asked.episode_id:
                self._unnamed[owner, env] = key[2]
            episode = self._episodes[key] = Episode(desk, owner, key[2], lambda _: self._forget(key))
        with episode.held():
            try:
                await episode.sit(env)
                played = await episode.reset(asked.seed, asked.options, name=_name(request))
            except Refused:
                if not episode.session:  # none was had, or it was lost, which is told by this
                    self._forget(key)
                raise
            episode.asked.clear()
        return result_of(played, episode.name)

    async def _step(self, desk: Desk, request: HttpRequest, env: str) -> Any:
        body: StepBody = await read_body(request, StepBody)
        action = action_of(body.action)
        owner = request.visitor.owner
        episode = await self._find(desk, self._key(owner, env, body.episode_id or _asked_for(request)))
        name = body.request_id or _name(request)
        episode.check(name)
        first = name != "" and name not in episode.asked
        if first:
            episode.asked.append(name)
        try:
            played = await episode.step(action, name=name, timeout=body.timeout_s)
        except Refused as err:
            if first and err.fault.code in _NOT_COUNTED:
                episode.asked.remove(name)
            raise
        return result_of(played, episode.name)

    async def _close(self, desk: Desk, request: HttpRequest, env: str) -> Any:  # noqa: ARG002
        body: CloseBody = await read_body(request, CloseBody)
        key = self._key(request.visitor.owner, env, body.episode_id or "")
        episode = self._episodes.get(key)
        self._forget(key)
        return {"closed": episode is not None and episode.close()}

    async def _state(self, desk: Desk, request: HttpRequest, env: str) -> Any:  # noqa: ARG002
        return state_of(self._episodes.get(self._key(request.visitor.owner, env, _asked_for(request))))

    async def _metadata(self, desk: Desk, request: HttpRequest, env: str) -> Any:  # noqa: ARG002
        spec = registry.get_spec(env)
        return {
            "name": env,
            "description": spec.summary or "a text environment",
            "version": __version__,
            "author": None,
            "documentation_url": None,
            "readme_content": None,
        }

    async def _schema(self, desk: Desk, request: HttpRequest, env: str) -> Any:  # noqa: ARG002
        return SCHEMA

    async def _health(self, desk: Desk, request: HttpRequest, env: str) -> Any:  # noqa: ARG002
        return {"status": "healthy"}

    # Tools over HTTP.

    async def _mcp(self, desk: Desk, request: HttpRequest, env: str) -> Any:
        name = None
        try:
            asked = toolbox.read_rpc(await request.body())
            name = asked.get("id")
            return toolbox.rpc_result(name, await self._rpc(desk, request.visitor.owner, env, asked))
        except toolbox.BadCall as err:
            return toolbox.rpc_error(name, *err.args)

    async def _rpc(self, desk: Desk, owner: str, env: str, asked: dict[str, Any]) -> Any:
        method, params = asked.get("method"), asked.get("params", {})
        if not isinstance(params, dict):
            raise toolbox.BadCall(toolbox.BAD_PARAMS, "params is an object")
        if method == "tools/list":
            return {"tools": toolbox.TOOLS}
        if method == "openenv/session/create":
            name = token_hex(16)
            episode = Episode(desk, owner, name, lambda _: self._untool(owner, name))
            try:
                await episode.sit(env)
            except Refused as err:
                raise toolbox.BadCall(-32000, err.fault.message) from None
            if episode.open:
                self._tooled[owner, name] = episode
            return {"session_id": name}
        found = self._tooled.get((owner, str(params.get("session_id"))))
        if method == "openenv/session/close":
            if found is None:
                raise toolbox.BadCall(toolbox.BAD_PARAMS, "there is no such session_id")
            self._tooled.pop((owner, found.name), None)
            return {"session_id": found.name, "closed": found.close()}
        if method != "tools/call":
            raise toolbox.BadCall(toolbox.NO_METHOD, f"there is no method {method!r}")
        if found is None:
            raise toolbox.BadCall(toolbox.BAD_PARAMS, "name a session_id; openenv/session/create makes one")
        answer = await toolbox.call(found, env, params.get("name"), params.get("arguments"), "")
        if params.get("name") == "close":
            self._untool(owner, found.name)  # else nothing would remind us of it
        return answer

    def _untool(self, owner: str, name: str) -> None:
        self._tooled.pop((owner, name), None)


def state_of(episode: Episode | None) -> dict[str, Any]:
    """How an episode stands."""
    if episode is None or episode.first is None or episode.last is None:
        return {"episode_id": None, "step_count": 0}
    return {
        "episode_id": episode.name,
        "step_count": episode.steps,
        "env": episode.env,
        "seed": episode.first.info.get("seed"),
        "total_reward": episode.total,
        "done": episode.last.done,
    }


def _name(request: HttpRequest) -> str:
    return request.visitor.request_id.decode("latin-1")


def _asked_for(request: HttpRequest) -> str:
    """The episode in the query."""
    return parse_qs(request.query.decode("latin-1")).get("episode_id", [""])[0][:255]

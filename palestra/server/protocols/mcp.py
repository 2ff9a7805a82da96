"""Serve each environment over MCP (streamable HTTP) at `/mcp/ID`, with the tools reset, step, render and close.

An MCP session has one environment, which is opened by the first reset and closed when the session ends. Responses are
plain JSON because nothing is streamed. The MCP SDK's server is not used because it manages its own sessions, and this
server's leases and limits would not apply to them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from secrets import token_urlsafe
from time import monotonic
from typing import Any

import msgspec

from palestra import __version__, registry
from palestra.remote.protocol import JSON, fault
from palestra.server.app import App, deny
from palestra.server.auth import Client
from palestra.server.dispatcher import Dispatcher
from palestra.server.protocols import env_tools
from palestra.server.protocols.env_tools import RpcError, rpc_error, rpc_result
from palestra.server.protocols.protocol_session import ProtocolSession, error_details, send_error
from palestra.server.request import HttpRequest, Receive, RequestError, Scope, Send, not_allowed
from palestra.server.responses import draining, quota_reached, sessions_full
from palestra.server.sessions import Cause
from palestra.server.settings import Settings

_SESSION_HEADER = b"mcp-session-id"
_INSTRUCTIONS = """\
This server provides the environment {id}: {summary}
Call `reset` to start an episode and read its rules. Then call `step` with one action at a time, in the format that \
the rules describe, until the result reports that the episode is over. A total reward of 1 means the task is solved."""


class McpSession(ProtocolSession):
    """MCP session, which has at most one open environment."""

    def __init__(
        self, dispatcher: Dispatcher, owner: str, served_env: str, on_end: Callable[[Cause | None], None]
    ) -> None:
        super().__init__(dispatcher, owner, on_end=on_end)
        self.served_env = served_env
        self.last_used = monotonic()


class Mcp:
    prefix = "/mcp/"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._envs = frozenset(settings.envs)
        self._sessions: dict[tuple[str, str], McpSession] = {}  # keyed by owner and session name
        self._last_sweep = monotonic()

    async def websocket(self, app: App, scope: Scope, receive: Receive, send: Send, client: Client) -> None:  # noqa: ARG002
        await receive()
        await deny(scope, send, fault("not_found", "MCP is available over HTTP only"))

    async def close(self) -> None:
        self._sessions.clear()

    async def http(self, app: App, request: HttpRequest) -> None:
        code = "ok"
        try:
            env = request.path[len(self.prefix) :].rstrip("/")
            if env not in self._envs:
                message = f"{env[:100]!r} is not served here. GET /v1/envs lists the served environments."
                raise RequestError(fault("unknown_env", message))
            self._sweep()
            if request.method == "DELETE":
                await self._delete(request, env)
            elif request.method == "POST":
                await self._post(app.dispatcher, request, env)
            else:
                raise RequestError(not_allowed("POST, DELETE"))
        except RequestError as err:
            code = err.fault.code
            data = {"code": code, **error_details(err.fault)}
            await send_error(request, err.fault, rpc_error(None, env_tools.INVALID_REQUEST, err.fault.message, data))
        app.dispatcher.stats.requests["mcp", code] += 1

    def _sweep(self) -> None:
        """Remove sessions that have no open environment and have not been used for longer than a lease."""
        now = monotonic()
        if now - self._last_sweep < min(60.0, self._settings.lease):
            return
        self._last_sweep = now
        for key, session in list(self._sessions.items()):
            if not session.is_open and now - session.last_used > self._settings.lease:
                del self._sessions[key]

    def _find(self, request: HttpRequest, env: str) -> tuple[tuple[str, str], McpSession]:
        name = next((value for header, value in request.headers if header == _SESSION_HEADER), b"").decode("latin-1")
        if not name:
            raise RequestError(fault("bad_request", "the Mcp-Session-Id header is missing; `initialize` returns it"))
        key = (request.client.owner, name)
        session = self._sessions.get(key)
        if session is None or session.served_env != env:
            raise RequestError(fault("unknown_session", "no such session; call `initialize` to open one"))
        session.last_used = monotonic()
        return key, session

    async def _delete(self, request: HttpRequest, env: str) -> None:
        key, session = self._find(request, env)
        del self._sessions[key]
        session.close()
        await request.send(200, b"{}", content_type=JSON)

    async def _post(self, dispatcher: Dispatcher, request: HttpRequest, env: str) -> None:
        body = await request.body()
        if request.content_type != JSON:
            raise RequestError(fault("unsupported_media", f"Content-Type must be {JSON}"))
        headers: list[tuple[bytes, bytes]] = []
        request_id = None
        try:
            message = env_tools.decode_rpc(body)
            request_id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
            if "id" not in message:  # the message is a notification
                await request.send(202, b"", content_type=JSON)
                return
            if not isinstance(request_id, str | int) or not isinstance(method, str) or not isinstance(params, dict):
                raise RpcError(env_tools.INVALID_REQUEST, "a request must have an id, a method and params")
            if method == "initialize":
                name = self._open(dispatcher, request.client.owner, env)
                headers.append((_SESSION_HEADER, name.encode()))
                response = rpc_result(request_id, _initialize_result(env, params.get("protocolVersion")))
            elif method == "ping":
                response = rpc_result(request_id, {})
            elif method == "tools/list":
                self._find(request, env)
                response = rpc_result(request_id, {"tools": env_tools.TOOLS})
            elif method == "tools/call":
                _, session = self._find(request, env)
                unique_id = f"{type(request_id).__name__} {request_id}"  # 1 and "1" are different ids
                tool, arguments = params.get("name"), params.get("arguments")
                response = rpc_result(request_id, await env_tools.call_tool(session, env, tool, arguments, unique_id))
            else:
                raise RpcError(env_tools.METHOD_NOT_FOUND, f"unknown method {method[:100]!r}")
        except RpcError as err:
            response = rpc_error(request_id, *err.args)
        await request.send(200, msgspec.json.encode(response), *headers, content_type=JSON)

    def _open(self, dispatcher: Dispatcher, owner: str, env: str) -> str:
        if dispatcher.draining:
            raise RequestError(draining())
        if len(self._sessions) >= self._settings.max_sessions:
            raise RequestError(sessions_full(self._settings.max_sessions))
        quota = self._settings.session_quota
        if quota is not None and sum(session_owner == owner for session_owner, _ in self._sessions) >= quota:
            raise RequestError(quota_reached(quota))
        name = token_urlsafe(16)
        self._sessions[owner, name] = McpSession(dispatcher, owner, env, partial(self._on_end, (owner, name)))
        return name

    def _on_end(self, key: tuple[str, str], cause: Cause | None) -> None:
        if cause in ("expired", "stopped"):  # all other causes are reported by the next call
            self._sessions.pop(key, None)


def _initialize_result(env: str, version: object) -> dict[str, Any]:
    summary = registry.get_spec(env).summary or "a text environment"
    return {
        "protocolVersion": version if version in env_tools.VERSIONS else env_tools.LATEST_VERSION,
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": f"palestra {env}", "version": __version__},
        "instructions": _INSTRUCTIONS.format(id=env, summary=summary),
    }

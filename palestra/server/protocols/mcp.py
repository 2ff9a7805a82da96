"""MCP over streamable HTTP for any environment: `/mcp/ID`, with the tools reset, step, render and close.

One MCP session has one environment, opened by its first reset and given back with it. Answers are plain JSON: there is
nothing to stream. Written on the wire itself, so that leases and limits are the server's own and no second application
runs beside it.
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
from palestra.server.auth import Visitor
from palestra.server.dispatcher import Desk
from palestra.server.protocols import toolbox
from palestra.server.protocols.protocol_session import Seat, refuse, told
from palestra.server.protocols.toolbox import BadCall, rpc_error, rpc_result
from palestra.server.request import HttpRequest, Receive, Refused, Scope, Send
from palestra.server.sessions import Cause
from palestra.server.settings import Settings

_SESSION = b"mcp-session-id"
_INSTRUCTIONS = """\
This server offers the environment {id}: {summary}
Call `reset` to begin an episode and read the rules; then call `step` with one action at a time, written as the rules \
say, until the answer tells that the episode is over. A reward of 1 in all means that the task is solved."""


class Client(Seat):
    """One MCP session."""

    def __init__(self, desk: Desk, owner: str, env: str, ended: Callable[[Cause | None], None]) -> None:
        super().__init__(desk, owner, ended=ended)
        self.serves = env
        self.used = monotonic()


class Mcp:
    prefix = "/mcp/"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._envs = frozenset(settings.envs)
        self._clients: dict[tuple[str, str], Client] = {}  # by whose, and the session's name
        self._looked = monotonic()

    async def socket(self, app: App, scope: Scope, receive: Receive, send: Send, visitor: Visitor) -> None:  # noqa: ARG002
        await receive()
        await deny(scope, send, fault("not_found", "MCP is spoken over HTTP here"))

    async def close(self) -> None:
        self._clients.clear()

    async def http(self, app: App, request: HttpRequest) -> None:
        code = "ok"
        try:
            env = request.path[len(self.prefix) :].rstrip("/")
            if env not in self._envs:
                raise Refused(fault("unknown_env", f"{env[:100]!r} is not served here. GET /v1/envs lists what is."))
            self._sweep()
            if request.method == "DELETE":
                await self._end(request, env)
            elif request.method == "POST":
                await self._post(app.desk, request, env)
            else:
                raise Refused(fault("not_allowed", "use POST, DELETE"))
        except Refused as err:
            code = err.fault.code
            body = rpc_error(None, toolbox.INVALID, err.fault.message, {"code": code, **told(err.fault)})
            await refuse(request, err.fault, body)
        app.desk.stats.requests["mcp", code] += 1

    def _sweep(self) -> None:
        """Forget sessions that nobody used for as long as an environment's lease lasts."""
        now = monotonic()
        if now - self._looked < min(60.0, self._settings.lease):
            return
        self._looked = now
        for key, client in list(self._clients.items()):
            if not client.open and now - client.used > self._settings.lease:
                del self._clients[key]

    def _client(self, request: HttpRequest, env: str) -> tuple[tuple[str, str], Client]:
        name = next((value for header, value in request.headers if header == _SESSION), b"").decode("latin-1")
        if not name:
            raise Refused(fault("bad_request", "the header Mcp-Session-Id is missing; initialize tells it"))
        key = (request.visitor.owner, name)
        client = self._clients.get(key)
        if client is None or client.serves != env:
            raise Refused(fault("unknown_session", "there is no such session; initialize begins one"))
        client.used = monotonic()
        return key, client

    async def _end(self, request: HttpRequest, env: str) -> None:
        key, client = self._client(request, env)
        del self._clients[key]
        client.close()
        await request.answer(200, b"{}", kind=JSON)

    async def _post(self, desk: Desk, request: HttpRequest, env: str) -> None:
        body = await request.body()
        if request.kind != JSON:
            raise Refused(fault("unsupported_media", f"send {JSON}, and say so in Content-Type"))
        headers: list[tuple[bytes, bytes]] = []
        name = None
        try:
            asked = toolbox.read_rpc(body)
            name, method, params = asked.get("id"), asked.get("method"), asked.get("params") or {}
            if "id" not in asked:  # a notification, or an answer to what was never asked
                await request.answer(202, b"", kind=JSON)
                return
            if not isinstance(name, str | int) or not isinstance(method, str) or not isinstance(params, dict):
                raise BadCall(toolbox.INVALID, "a request has an id, a method and params")
            if method == "initialize":
                key = self._begin(desk, request.visitor.owner, env)
                headers.append((_SESSION, key.encode()))
                answer = rpc_result(name, _hello(env, params.get("protocolVersion")))
            elif method == "ping":
                answer = rpc_result(name, {})
            elif method not in ("tools/list", "tools/call"):
                raise BadCall(toolbox.NO_METHOD, f"there is no method {method[:100]!r}")
            else:
                _, client = self._client(request, env)
                answer = rpc_result(name, await _tools(client, env, method, params, f"{type(name).__name__} {name}"))
        except BadCall as err:
            answer = rpc_error(name, *err.args)
        await request.answer(200, msgspec.json.encode(answer), *headers, kind=JSON)

    def _begin(self, desk: Desk, owner: str, env: str) -> str:
        if desk.draining:
            raise Refused(fault("draining", "this server is about to stop", retry_after=5.0))
        if len(self._clients) >= self._settings.max_sessions:
            raise Refused(fault("capacity", f"all {self._settings.max_sessions} sessions are taken", retry_after=5.0))
        quota = self._settings.sessions_per_client
        if quota is not None and sum(whose == owner for whose, _ in self._clients) >= quota:
            raise Refused(fault("quota", f"you have {quota} sessions, as many as a client may", retry_after=5.0))
        name = token_urlsafe(16)
        self._clients[owner, name] = Client(desk, owner, env, partial(self._ended, (owner, name)))
        return name

    def _ended(self, key: tuple[str, str], cause: Cause | None) -> None:
        if cause in ("expired", "stopped"):  # other ends are told to whoever calls next
            self._clients.pop(key, None)


async def _tools(client: Client, env: str, method: str, params: dict[str, Any], request: str) -> dict[str, Any]:
    if method == "tools/list":
        return {"tools": toolbox.TOOLS}
    return await toolbox.call(client, env, params.get("name"), params.get("arguments"), request)


def _hello(env: str, version: object) -> dict[str, Any]:
    summary = registry.get_spec(env).summary or "a text environment"
    return {
        "protocolVersion": version if version in toolbox.VERSIONS else toolbox.LATEST,
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": f"palestra {env}", "version": __version__},
        "instructions": _INSTRUCTIONS.format(id=env, summary=summary),
    }

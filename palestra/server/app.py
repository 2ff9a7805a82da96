"""The server's own protocol as an ASGI application: HTTP requests and the multiplexed socket, both to the desk.

Written against ASGI itself: a step is a lookup, a message to a worker and a message back, and a framework's routing and
validation would cost more than all of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from palestra.remote import protocol
from palestra.remote.protocol import JSON, MSGPACK, PREFIX, Batch, Fault, Request, fault, status_of
from palestra.server.auth import Guard, Visitor
from palestra.server.dispatcher import Desk
from palestra.server.metrics import metrics_text
from palestra.server.multiplex import talk
from palestra.server.openapi import document
from palestra.server.request import (
    TYPES,
    Gone,
    HttpRequest,
    Receive,
    Refused,
    Scope,
    Send,
    not_allowed,
    not_found,
)
from palestra.server.responses import answered
from palestra.server.sessions import Result
from palestra.server.settings import Settings

log = logging.getLogger("palestra.server")

# The calls of a session over HTTP: the last part of the path -> what reads its body.
CALLS: dict[str, type[protocol.SessionRequest]] = {
    "reset": protocol.Reset,
    "step": protocol.Step,
    "fork": protocol.Fork,
    "render": protocol.Render,
    "suggest_action": protocol.SuggestAction,
    "close": protocol.Close,
}
_KINDS = (JSON, MSGPACK)
_READ = {kind: {name: protocol.decoder(kind, wanted) for name, wanted in CALLS.items()} for kind in _KINDS}
_READ_CREATE = {kind: protocol.decoder(kind, protocol.Create) for kind in _KINDS}
_READ_STEPS = {kind: protocol.decoder(kind, protocol.Steps) for kind in _KINDS}
_READ_BATCH = {kind: protocol.decoder(kind, Batch) for kind in _KINDS}
_EMPTY = {JSON: b"{}", MSGPACK: b"\x80"}
_SESSIONS = f"{PREFIX}/sessions/"
_OPEN = frozenset({"/health", "/ready"})  # what balancers ask without a token


class Dialect(Protocol):
    """Another protocol under a prefix of its own."""

    prefix: str

    async def http(self, app: App, request: HttpRequest) -> None: ...

    async def socket(self, app: App, scope: Scope, receive: Receive, send: Send, visitor: Visitor) -> None: ...

    async def close(self) -> None: ...


class App:
    """The application. `desk` starts and stops with its lifespan."""

    def __init__(self, settings: Settings, dialects: list[Dialect] | None = None) -> None:
        self.settings = settings
        self.desk = Desk(settings)
        self.guard = Guard(settings)
        self.dialects = dialects or []
        self.sockets = 0
        self._openapi: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if scope.get("root_path"):  # it lives below a path of a balancer's, which is none of its own addresses
            scope = {**scope, "path": scope["path"].removeprefix(scope["root_path"])}
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "websocket":
            await self._socket(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.desk.start()
                except Exception as err:  # noqa: BLE001  # the server says it
                    await send({"type": "lifespan.startup.failed", "message": f"{type(err).__name__}: {err}"})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                for dialect in self.dialects:
                    await dialect.close()
                await self.desk.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # HTTP.

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor = self.guard.visitor(scope)
        request = HttpRequest(scope, receive, send, visitor, self.settings.max_body)
        path = request.path
        try:
            if visitor.refusal is not None and not (visitor.refusal.code == "unauthorized" and path in _OPEN):
                await request.tell(visitor.refusal)
            elif path.startswith(_SESSIONS):
                await self._call(request, path[len(_SESSIONS) :])
            else:
                await self._other(request, path)
        except Refused as err:
            self.desk.stats.requests["http", err.fault.code] += 1
            await request.tell(err.fault)
        except Gone:
            pass

    async def _call(self, request: HttpRequest, rest: str) -> None:
        """A session's own calls: the hot path."""
        name, slash, what = rest.partition("/")
        ask: Any
        if not slash:
            if request.method == "GET":
                ask = protocol.Status(session=name)
            elif request.method == "DELETE":
                ask = protocol.Close(session=name)
            else:
                raise Refused(not_allowed("GET, DELETE"))
            what = "status" if request.method == "GET" else "close"
        else:
            reads = _READ[request.kind or JSON]
            if what not in reads:
                raise Refused(not_found())
            if request.method != "POST":
                raise Refused(not_allowed("POST"))
            ask = await self._read(request, reads[what])
            if ask.session and ask.session != name:
                raise Refused(fault("bad_request", "the body names another session than the path"))
            ask.session = name
        await self._submit(request, what, ask)

    async def _read(self, request: HttpRequest, read: Callable[[bytes], Any]) -> Any:
        body = await request.body()
        if not request.kind:
            if body:
                raise Refused(fault("unsupported_media", f"send {JSON} or {MSGPACK}, and say so in Content-Type"))
            body = b"{}"
        elif not body:
            body = _EMPTY[request.kind]
        try:
            ask = read(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            raise Refused(fault("bad_request", _brief(err))) from None
        if not getattr(ask, "id", "x") and request.visitor.request_id:
            ask.id = request.visitor.request_id.decode("latin-1")[:128]
        return ask

    async def _submit(self, request: HttpRequest, what: str, ask: Request, status: int = 200) -> None:
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.desk.submit(ask, request.visitor.owner, request.accept, partial(_settle, answer))
        result = answer.result() if answer.done() else await answer
        code = result.code if isinstance(result, Fault) else "ok"
        self.desk.stats.requests[what, code] += 1
        if log.isEnabledFor(logging.DEBUG):
            extra = {"op": what, "code": code, "session": getattr(ask, "session", ""), "request": ask.id}
            log.debug("request", extra=extra)
        await request.tell(result, status)

    async def _other(self, request: HttpRequest, path: str) -> None:
        for dialect in self.dialects:
            if path.startswith(dialect.prefix):
                await dialect.http(self, request)
                return
        route = _ROUTES.get(path)
        if route is None and path.startswith(f"{PREFIX}/envs/"):
            route = ("GET", App._env)
        if route is None:
            raise Refused(not_found())
        method, serve = route
        if request.method != method and not (request.method == "HEAD" and method == "GET"):
            raise Refused(not_allowed("GET, HEAD" if method == "GET" else method))
        await serve(self, request)

    async def _create(self, request: HttpRequest) -> None:
        ask = await self._read(request, _READ_CREATE[request.kind or JSON])
        await self._submit(request, "create", ask, 201)

    async def _steps(self, request: HttpRequest) -> None:
        await self._submit(request, "steps", await self._read(request, _READ_STEPS[request.kind or JSON]))

    async def _batch(self, request: HttpRequest) -> None:
        batch: Batch = await self._read(request, _READ_BATCH[request.kind or JSON])
        loop = asyncio.get_running_loop()
        results: list[Result | None] = [None] * len(batch.requests)
        left = len(results)
        done = loop.create_future()

        def told(place: int, result: Result) -> None:
            nonlocal left
            results[place] = result
            left -= 1
            if left == 0 and not done.done():
                done.set_result(None)

        for place, ask in enumerate(batch.requests):
            if batch.timeout is not None and ask.timeout is None:
                ask.timeout = batch.timeout
            self.desk.submit(ask, request.visitor.owner, request.accept, partial(told, place))
        await done
        self.desk.stats.requests["batch", "ok"] += 1
        answers = [answered(ask.id, result) for ask, result in zip(batch.requests, results, strict=True) if result]
        await request.value({"answers": answers})

    async def _envs(self, request: HttpRequest) -> None:
        from palestra import registry

        found = [{"env": i, "summary": registry.get_spec(i).summary} for i in self.settings.envs]
        await request.value({"envs": found})

    async def _env(self, request: HttpRequest) -> None:
        from palestra import registry

        name = request.path[len(f"{PREFIX}/envs/") :]
        if name not in self.settings.envs:
            raise Refused(fault("unknown_env", "that environment is not served here", kind="UnknownEnv"))
        await request.value(registry.get_spec(name).to_json())

    async def _health(self, request: HttpRequest) -> None:
        await request.value({"status": "healthy"})

    async def _ready(self, request: HttpRequest) -> None:
        if self.desk.ready:
            await request.value({"status": "ready"})
        elif self.desk.draining:
            raise Refused(fault("draining", "this server is about to stop", retry_after=5.0))
        else:
            raise Refused(fault("unavailable", "a worker is starting", retry_after=1.0))

    async def _metrics(self, request: HttpRequest) -> None:
        text = metrics_text(self.desk, self.sockets)
        await request.answer(200, text.encode(), kind="text/plain; version=0.0.4; charset=utf-8")

    async def _document(self, request: HttpRequest) -> None:
        if self._openapi is None:
            self._openapi = msgspec.json.encode(document(self.settings.envs))
        await request.answer(200, self._openapi, kind=JSON)

    # The socket.

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        visitor = self.guard.visitor(scope)
        path: str = scope["path"]
        refusal = visitor.refusal
        if refusal is None:
            for dialect in self.dialects:
                if path.startswith(dialect.prefix):
                    await dialect.socket(self, scope, receive, send, visitor)
                    return
            if path != f"{PREFIX}/ws":
                refusal = not_found()
            elif self.desk.draining:
                refusal = fault("draining", "this server is about to stop")
        if refusal is not None:
            await receive()
            await deny(scope, send, refusal)
            return
        self.sockets += 1
        try:
            await talk(self.desk, receive, send, visitor)
        finally:
            self.sockets -= 1


async def deny(scope: Scope, send: Send, refusal: Fault) -> None:
    """Turn a socket away before it is one, with the status HTTP would give where the server can say it."""
    if "websocket.http.response" in scope.get("extensions", {}):
        body = msgspec.json.encode({"error": refusal})
        headers = [TYPES[JSON], (b"content-length", b"%d" % len(body))]
        await send({"type": "websocket.http.response.start", "status": status_of(refusal), "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
    else:
        await send({"type": "websocket.close", "code": 1008})


def _settle(answer: asyncio.Future[Result], result: Result) -> None:
    if not answer.done():
        answer.set_result(result)


def _brief(err: Exception) -> str:
    return str(err)[:300] or type(err).__name__


_ROUTES: dict[str, tuple[str, Callable[[App, HttpRequest], Awaitable[None]]]] = {
    f"{PREFIX}/sessions": ("POST", App._create),
    f"{PREFIX}/steps": ("POST", App._steps),
    f"{PREFIX}/batch": ("POST", App._batch),
    f"{PREFIX}/envs": ("GET", App._envs),
    "/health": ("GET", App._health),
    "/ready": ("GET", App._ready),
    "/metrics": ("GET", App._metrics),
    "/openapi.json": ("GET", App._document),
}

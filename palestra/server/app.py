"""ASGI application that serves the native protocol over HTTP and WebSocket.

No web framework is used because it would reduce the throughput: the step route reaches 77% of its current throughput
with Starlette's routing, and 66% with Starlette's routing and authentication (docs/dependencies.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from palestra import registry
from palestra.remote import protocol
from palestra.remote.protocol import JSON, MSGPACK, PREFIX, Batch, Fault, Request, fault, status_of
from palestra.server.auth import Authenticator, Client
from palestra.server.dispatcher import Dispatcher
from palestra.server.metrics import metrics_text
from palestra.server.multiplex import serve_websocket
from palestra.server.openapi import openapi_document
from palestra.server.request import (
    CONTENT_TYPES,
    ClientDisconnected,
    HttpRequest,
    Receive,
    RequestError,
    Scope,
    Send,
    not_allowed,
    not_found,
)
from palestra.server.responses import draining
from palestra.server.sessions import Result
from palestra.server.settings import Settings

log = logging.getLogger("palestra.server")

# Maps the last path segment of a session's HTTP route to the type of the request body.
OPERATIONS: dict[str, type[protocol.SessionRequest]] = {
    "reset": protocol.Reset,
    "step": protocol.Step,
    "fork": protocol.Fork,
    "render": protocol.Render,
    "suggest_action": protocol.SuggestAction,
    "close": protocol.Close,
}
_MEDIA_TYPES = (JSON, MSGPACK)
_DECODERS = {m: {name: protocol.decoder(m, body) for name, body in OPERATIONS.items()} for m in _MEDIA_TYPES}
_DECODE_CREATE = {m: protocol.decoder(m, protocol.Create) for m in _MEDIA_TYPES}
_DECODE_STEPS = {m: protocol.decoder(m, protocol.Steps) for m in _MEDIA_TYPES}
_DECODE_BATCH = {m: protocol.decoder(m, Batch) for m in _MEDIA_TYPES}
_EMPTY_OBJECT = {JSON: b"{}", MSGPACK: b"\x80"}
_SESSIONS = f"{PREFIX}/sessions/"
_PUBLIC = frozenset({"/health", "/ready"})  # load balancers request these paths without a token


class ProtocolAdapter(Protocol):
    """Adapter that serves another project's protocol under the path `prefix`."""

    prefix: str

    async def http(self, app: App, request: HttpRequest) -> None: ...

    async def websocket(self, app: App, scope: Scope, receive: Receive, send: Send, client: Client) -> None: ...

    async def close(self) -> None: ...


class App:
    """ASGI application. The dispatcher starts and stops with the ASGI lifespan."""

    def __init__(self, settings: Settings, protocols: list[ProtocolAdapter] | None = None) -> None:
        self.settings = settings
        self.dispatcher = Dispatcher(settings)
        self.protocols = protocols or []
        self.websockets = 0  # number of open WebSocket connections
        self._authenticator = Authenticator(settings)
        self._openapi: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if scope.get("root_path"):  # the app is mounted under a path prefix, for example by Ray Serve
            scope = {**scope, "path": scope["path"].removeprefix(scope["root_path"])}
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "websocket":
            await self._websocket(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.dispatcher.start()
                except asyncio.CancelledError:  # Ctrl-C while the workers start; uvicorn would log a traceback
                    await self.dispatcher.stop()
                    return
                except Exception as err:  # noqa: BLE001  # the ASGI server reports it
                    await send({"type": "lifespan.startup.failed", "message": f"{type(err).__name__}: {err}"})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                for adapter in self.protocols:
                    await adapter.close()
                await self.dispatcher.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # HTTP.

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = self._authenticator.identify(scope)
        request = HttpRequest(scope, receive, send, client, self.settings.max_body, self.dispatcher.budget)
        path = request.path
        try:
            if client.error is not None and not (client.error.code == "unauthorized" and path in _PUBLIC):
                await request.send_result(client.error)
            elif path.startswith(_SESSIONS):
                await self._session_route(request, path[len(_SESSIONS) :])
            else:
                await self._other_route(request, path)
        except RequestError as err:
            self.dispatcher.stats.requests["http", err.fault.code] += 1
            await request.send_result(err.fault)
        except ClientDisconnected:
            pass
        finally:
            request.release()

    async def _session_route(self, request: HttpRequest, rest: str) -> None:
        """Handle a request to one session. Most requests to the server take this path."""
        name, slash, operation = rest.partition("/")
        body: Any
        if not slash:
            if request.method == "GET":
                operation, body = "status", protocol.Status(session=name)
            elif request.method == "DELETE":
                operation, body = "close", protocol.Close(session=name)
            else:
                raise RequestError(not_allowed("GET, DELETE"))
        else:
            decoders = _DECODERS[request.content_type or JSON]
            if operation not in decoders:
                raise RequestError(not_found())
            if request.method != "POST":
                raise RequestError(not_allowed("POST"))
            body = await self._read(request, decoders[operation])
            if body.session and body.session != name:
                raise RequestError(fault("bad_request", "`session` in the body differs from the session in the path"))
            body.session = name
        await self._submit(request, operation, body)

    async def _read(self, request: HttpRequest, decode: Callable[[bytes], Any]) -> Any:
        body = await request.body()
        if not request.content_type:
            if body:
                raise RequestError(fault("unsupported_media", f"Content-Type must be {JSON} or {MSGPACK}"))
            body = b"{}"
        elif not body:
            body = _EMPTY_OBJECT[request.content_type]
        try:
            message = decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            raise RequestError(fault("bad_request", str(err)[:300] or type(err).__name__)) from None
        if not getattr(message, "id", "x") and request.client.request_id:
            message.id = request.client.request_id.decode("latin-1")[:128]
        return message

    async def _submit(
        self, request: HttpRequest, operation: str, message: Request, status: int = 200, *, refuse: bool = True
    ) -> None:
        response: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.dispatcher.submit(message, request.client.owner, request.accept, partial(_set_result, response))
        result = response.result() if response.done() else await response
        code = result.code if isinstance(result, Fault) else "ok"
        self.dispatcher.stats.requests[operation, code] += 1
        if log.isEnabledFor(logging.DEBUG):
            session = getattr(message, "session", "")
            log.debug("request", extra={"op": operation, "code": code, "session": session, "request": message.id})
        await request.send_result(result, status, refuse=refuse)

    async def _other_route(self, request: HttpRequest, path: str) -> None:
        for adapter in self.protocols:
            if path.startswith(adapter.prefix):
                await adapter.http(self, request)
                return
        route = _ROUTES.get(path)
        if route is None and path.startswith(f"{PREFIX}/envs/"):
            route = ("GET", App._env)
        if route is None:
            raise RequestError(not_found())
        method, handler = route
        if request.method != method and not (request.method == "HEAD" and method == "GET"):
            raise RequestError(not_allowed("GET, HEAD" if method == "GET" else method))
        await handler(self, request)

    async def _create(self, request: HttpRequest) -> None:
        body = await self._read(request, _DECODE_CREATE[request.content_type or JSON])
        await self._submit(request, "create", body, 201)

    async def _steps(self, request: HttpRequest) -> None:
        body = await self._read(request, _DECODE_STEPS[request.content_type or JSON])
        request.check_budget()
        await self._submit(request, "steps", body, refuse=False)

    async def _batch(self, request: HttpRequest) -> None:
        batch: Batch = await self._read(request, _DECODE_BATCH[request.content_type or JSON])
        futures: list[asyncio.Future[Result]] = []
        loop = asyncio.get_running_loop()
        for message in batch.requests:
            if batch.timeout is not None and message.timeout is None:
                message.timeout = batch.timeout
            future: asyncio.Future[Result] = loop.create_future()
            futures.append(future)
            self.dispatcher.submit(message, request.client.owner, request.accept, partial(_set_result, future))
        results = [await future for future in futures]
        self.dispatcher.stats.requests["batch", "ok"] += 1
        await request.send_responses([message.id for message in batch.requests], results)

    async def _envs(self, request: HttpRequest) -> None:
        envs = [{"env": name, "summary": registry.get_spec(name).summary} for name in self.settings.envs]
        await request.send_value({"envs": envs})

    async def _env(self, request: HttpRequest) -> None:
        name = request.path[len(f"{PREFIX}/envs/") :]
        if name not in self.settings.envs:
            raise RequestError(fault("unknown_env", "this environment is not served here", kind="UnknownEnv"))
        await request.send_value(registry.get_spec(name).to_json())

    async def _health(self, request: HttpRequest) -> None:
        await request.send_value({"status": "healthy"})

    async def _ready(self, request: HttpRequest) -> None:
        if self.dispatcher.ready:
            await request.send_value({"status": "ready"})
        elif self.dispatcher.draining:
            raise RequestError(draining())
        else:
            raise RequestError(fault("unavailable", "a worker is still starting", retry_after=1.0))

    async def _metrics(self, request: HttpRequest) -> None:
        text = metrics_text(self.dispatcher, self.websockets)
        await request.send(200, text, content_type="text/plain; version=0.0.4; charset=utf-8")

    async def _document(self, request: HttpRequest) -> None:
        if self._openapi is None:
            self._openapi = msgspec.json.encode(openapi_document(self.settings.envs))
        await request.send(200, self._openapi, content_type=JSON)

    # WebSocket.

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = self._authenticator.identify(scope)
        path: str = scope["path"]
        error = client.error
        if error is None:
            for adapter in self.protocols:
                if path.startswith(adapter.prefix):
                    await adapter.websocket(self, scope, receive, send, client)
                    return
            if path != f"{PREFIX}/ws":
                error = not_found()
            elif self.dispatcher.draining:
                error = draining()
        if error is not None:
            await receive()
            await deny(scope, send, error)
            return
        self.websockets += 1
        try:
            await serve_websocket(self.dispatcher, receive, send, client)
        finally:
            self.websockets -= 1


async def deny(scope: Scope, send: Send, error: Fault) -> None:
    """Reject a WebSocket handshake. The error's HTTP status is sent if the ASGI server supports it."""
    if "websocket.http.response" in scope.get("extensions", {}):
        body = msgspec.json.encode({"error": error})
        headers = [CONTENT_TYPES[JSON], (b"content-length", b"%d" % len(body))]
        await send({"type": "websocket.http.response.start", "status": status_of(error), "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
    else:
        await send({"type": "websocket.close", "code": 1008})


def _set_result(future: asyncio.Future[Result], result: Result) -> None:
    if not future.done():
        future.set_result(result)


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

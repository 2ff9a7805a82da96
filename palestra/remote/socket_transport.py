"""Send requests over one WebSocket per server, shared by all sessions in this process and run by a background thread.

Requests that are submitted while a message is being sent are combined into the next message. If the connection breaks,
it is reopened, and requests without a response are sent again with the same id, so that the server executes each only
once.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from palestra.errors import EnvFailed, PalestraError
from palestra.optional import require
from palestra.remote import protocol
from palestra.remote.errors import BUSY, NoResponse, error_from
from palestra.remote.protocol import MSGPACK, Fault, Request, encoder

Callback: TypeAlias = Callable[[dict[str, Any] | PalestraError], None]  # called with the result or the error
MAX_MESSAGE = 1 << 30  # maximum bytes per message
MAX_BATCH = 1_024  # maximum number of requests per message
CHECK_INTERVAL = 0.25  # seconds between checks of deadlines


class IncomingResponse(Struct, kw_only=True):
    """Response received from the server."""

    id: str = ""
    status: int = 200
    result: dict[str, Any] | UnsetType = UNSET
    error: Fault | UnsetType = UNSET


_decode = msgspec.msgpack.Decoder(list[IncomingResponse] | IncomingResponse).decode
_encode = encoder(MSGPACK)


class PendingRequest:
    """Request that has not received a response yet."""

    __slots__ = ("callback", "deadline", "request", "retry_until")

    def __init__(self, request: Request, callback: Callback, timeout: float, patience: float) -> None:
        self.request = request
        self.callback = callback
        self.deadline = monotonic() + timeout
        self.retry_until = monotonic() + min(timeout, patience)  # time until which to retry while the server is busy


class SocketThread:
    """Background thread with an event loop for the socket. All methods except `send` and `stop` run in this loop."""

    def __init__(self, address: str, server: str, token: str | None, patience: float) -> None:
        self._address = address
        self._server = server
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._patience = patience
        self._lock = threading.Lock()
        self._outbox: list[PendingRequest] = []
        self._pending: dict[str, PendingRequest] = {}
        self._ids = count()
        self._prefix = f"{os.getpid():x}-{os.urandom(6).hex()}-"
        self._socket: Any = None
        self._connecting: asyncio.Task[None] | None = None
        self._sending = False
        self._stopped = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="palestra-remote", daemon=True)
        self._thread.start()

    def send(self, request: Request, callback: Callback, timeout: float) -> None:
        """Send a request from any thread. `callback` is called in the background thread."""
        pending = PendingRequest(request, callback, timeout, self._patience)
        with self._lock:
            if self._stopped:
                raise EnvFailed(f"the connection to {self._server} is closed")
            request.id = f"{self._prefix}{next(self._ids):x}"
            first = not self._outbox
            self._outbox.append(pending)
        if first:
            self._loop.call_soon_threadsafe(self._flush)

    def stop(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._end)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2.0)

    def _end(self) -> None:
        async def end() -> None:
            if self._connecting is not None:
                self._connecting.cancel()
                await asyncio.gather(self._connecting, return_exceptions=True)
            socket, self._socket = self._socket, None
            if socket is not None:
                with suppress(Exception):
                    async with asyncio.timeout(1.0):
                        await socket.close()
                socket.transport.abort()  # in case the server does not complete the closing handshake
                await asyncio.sleep(0.01)
            self._loop.stop()

        self._end_task = self._loop.create_task(end())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_later(CHECK_INTERVAL, self._fail_late)
        try:
            self._loop.run_forever()
        finally:
            self._fail_all(NoResponse(f"the connection to {self._server} was closed"))
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.close()

    # Methods that run in the event loop.

    def _flush(self) -> None:
        if self._socket is None:
            self._open()
        elif not self._sending:
            self._sending = True
            self._send_task = self._loop.create_task(self._send_all(self._socket))

    async def _send_all(self, socket: Any) -> None:
        try:
            while socket is self._socket:
                with self._lock:
                    batch = self._outbox[:MAX_BATCH]
                    del self._outbox[:MAX_BATCH]
                if not batch:
                    return
                for pending in batch:
                    self._pending[pending.request.id] = pending
                await socket.send(_encode([pending.request for pending in batch]))
        except Exception:  # noqa: BLE001  # `_read_all` fails too and reopens the socket
            return
        finally:
            self._sending = False

    def _open(self) -> None:
        if self._connecting is None or self._connecting.done():
            self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        """Open the socket, with retries for `patience` seconds, and send all pending requests again."""
        client = require("websockets.asyncio.client", extra="serve")
        exceptions = require("websockets.exceptions", extra="serve")
        end = monotonic() + self._patience
        pause = 0.05
        while True:
            try:
                self._socket = await client.connect(
                    self._address,
                    additional_headers=self._headers,
                    max_size=MAX_MESSAGE,
                    compression=None,
                    open_timeout=10,
                    proxy=None,
                )
                break
            except exceptions.InvalidStatus as err:
                refusal = _refusal(err.response, self._server)
                if refusal is not None:
                    self._fail_all(refusal)
                    return
                reason: Exception = err
            except (OSError, TimeoutError, exceptions.WebSocketException) as err:
                reason = err
            if monotonic() + pause > end:
                self._fail_all(NoResponse(f"no server responds at {self._server}: {reason}"))
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)
        with self._lock:
            self._outbox[:0] = self._pending.values()
        self._read_task = self._loop.create_task(self._read_all(self._socket))
        self._flush()

    async def _read_all(self, socket: Any) -> None:
        try:
            async for message in socket:
                responses = _decode(message)
                for response in responses if isinstance(responses, list) else (responses,):
                    self._receive(response)
        except Exception:  # noqa: BLE001, S110  # the socket is reopened after any error
            pass
        if socket is self._socket:
            self._socket = None
            if self._pending or self._outbox:
                self._open()

    def _receive(self, response: IncomingResponse) -> None:
        pending = self._pending.get(response.id)
        if pending is None:
            return  # a duplicate response
        if isinstance(response.error, Fault):
            fault = response.error
            pause = fault.retry_after if isinstance(fault.retry_after, float) else 0.1
            if fault.code in BUSY and monotonic() + pause < pending.retry_until:
                self._loop.call_later(pause, self._retry, response.id)
                return
            del self._pending[response.id]
            pending.callback(error_from(fault, self._server))
        else:
            del self._pending[response.id]
            pending.callback(response.result if isinstance(response.result, dict) else {})

    def _retry(self, request_id: str) -> None:
        pending = self._pending.pop(request_id, None)
        if pending is not None:
            with self._lock:
                self._outbox.append(pending)
            self._flush()

    def _fail_late(self) -> None:
        """Fail all requests that have exceeded their deadline. Called periodically."""
        now = monotonic()
        late = [request_id for request_id, pending in self._pending.items() if pending.deadline < now]
        for request_id in late:
            pending = self._pending.pop(request_id)
            pending.callback(NoResponse(f"no response from {self._server} in time; a late response will be dropped"))
        self._loop.call_later(CHECK_INTERVAL, self._fail_late)

    def _fail_all(self, error: PalestraError) -> None:
        with self._lock:
            unsent = [pending for pending in self._outbox if pending.request.id not in self._pending]
            failed = [*self._pending.values(), *unsent]
            self._outbox.clear()
        self._pending.clear()
        for pending in failed:
            pending.callback(error)


def _refusal(response: Any, server: str) -> PalestraError | None:
    """Return the error with which a server rejected the handshake, or None if a later attempt may succeed."""
    try:
        fault = msgspec.json.decode(response.body or b"", type=dict[str, Fault])["error"]
    except (msgspec.DecodeError, KeyError):
        if response.status_code in (502, 503, 504):
            return None
        return EnvFailed(f"{server} is not a Palestra server: it returned status {response.status_code}")
    return None if fault.code in BUSY else error_from(fault, server)


class SocketTransport:
    """Transport over a WebSocket, which is closed when the transport is garbage-collected."""

    def __init__(self, address: str, server: str, token: str | None, patience: float) -> None:
        self.server = server
        self._thread = SocketThread(address, server, token, patience)
        self._finalizer = weakref.finalize(self, self._thread.stop)

    def send(self, request: Request, callback: Callback, timeout: float) -> None:
        """Send a request without waiting. `callback` is called in the background thread with the result or error."""
        self._thread.send(request, callback, timeout)

    def call(self, request: Request, timeout: float) -> dict[str, Any]:
        """Send a request and return its result."""
        return self._future(request, timeout).result()

    async def acall(self, request: Request, timeout: float) -> dict[str, Any]:
        """Like `call`, but without blocking the event loop."""
        return await asyncio.wrap_future(self._future(request, timeout))

    def close_session(self, session: str) -> None:
        """Close a session without waiting. If this fails, the server closes the session when its lease expires."""
        self.send(protocol.Close(session=session), lambda _: None, 10.0)

    def _future(self, request: Request, timeout: float) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()

        def callback(result: dict[str, Any] | PalestraError) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if isinstance(result, PalestraError):
                future.set_exception(result)
            else:
                future.set_result(result)

        self._thread.send(request, callback, timeout)
        return future


_transports: weakref.WeakValueDictionary[tuple[Any, ...], SocketTransport] = weakref.WeakValueDictionary()
_transports_lock = threading.Lock()


def shared_socket(address: str, server: str, token: str | None, patience: float) -> SocketTransport:
    """Return the transport that all callers with the same arguments in this process share."""
    # A forked process does not inherit the thread, so it opens its own socket.
    key = (os.getpid(), address, token, patience)
    with _transports_lock:
        transport = _transports.get(key)
        if transport is None:
            transport = _transports[key] = SocketTransport(address, server, token, patience)
        return transport

"""Extend uvicorn's HTTP and WebSocket connections with limits for clients that are too slow or send too much data.

Uvicorn has no timeout for receiving a request or for sending a response, and it buffers any number of headers and
message fragments. These classes limit the size of the headers, the time to send a request and to read the response, and
the number of fragments per message. A client that exceeds a limit is disconnected.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from palestra.remote.protocol import CODES, JSON, encode_json, fault
from palestra.server.budget import FREE, ByteBudget

if TYPE_CHECKING:
    from websockets.frames import Frame

MAX_HEAD = 1 << 16  # maximum size of the request line and headers, in bytes
# Maximum overhead of chunked encoding, relative to the body limit. A one-byte chunk has five bytes of overhead.
MAX_OVERHEAD = 8
MAX_FRAGMENTS = 4_096  # maximum number of fragments per WebSocket message


class WriteTimeout:
    """Mixin that disconnects clients that do not read their responses."""

    transport: Any
    _unread = 0  # size of the write buffer at the last check
    _unread_since = 0.0

    def check_write(self, now: float, timeout: float) -> None:
        unread = self.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._unread, self._unread_since = unread, now
        elif now - self._unread_since > timeout:
            self.transport.abort()  # `close` would wait until the buffer is empty


class HttpConnection(WriteTimeout, HttpToolsProtocol):
    """HTTP connection with limits on the size and duration of requests."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # ws_max_size is also the maximum size of an HTTP body.
        self._max_overhead = MAX_OVERHEAD * self.config.ws_max_size
        self._overhead = 0  # bytes received for the current request that are not in its body
        self._state: tuple[Any, bool] = (None, False)  # state of the request at the last check
        self._state_since = monotonic()

    # The next three methods run for every request. They call the base class by name because `super()` is slower.

    def on_message_begin(self) -> None:
        self._overhead = 0
        HttpToolsProtocol.on_message_begin(self)

    def on_body(self, body: bytes) -> None:
        self._overhead -= len(body)
        HttpToolsProtocol.on_body(self, body)

    def data_received(self, data: bytes) -> None:
        self._overhead += len(data)
        HttpToolsProtocol.data_received(self, data)
        if self._overhead > MAX_HEAD:
            self._check_overhead()

    def _check_overhead(self) -> None:
        in_head = self.scope is None or "method" not in self.scope
        if in_head:
            self._refuse("too_large", f"the request line and headers may have at most {MAX_HEAD:,} bytes")
        elif self._overhead > self._max_overhead and self.cycle is not None and self.cycle.more_body:
            self._refuse("too_large", "the overhead of the chunked encoding is too large")

    def check(self, now: float, timeout: float) -> None:
        """Disconnect a client that takes too long to send its request or to read the response."""
        self.check_write(now, timeout)
        cycle = self.cycle
        idle = cycle is None or cycle.response_complete
        keep_alive = idle and self.timeout_keep_alive_task is not None and not cycle.more_body
        if self.pipeline or keep_alive or (not idle and not cycle.more_body):
            # The request is being served, or the connection is idle, for which uvicorn has a timeout.
            self._state = (None, False)
            return
        state = (cycle, idle)
        if state != self._state:
            self._state, self._state_since = state, now
        elif now - self._state_since > timeout:
            self._refuse("too_slow", f"the request must be complete within {timeout:g} s")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # replaced by a JSON error
        self._refuse("bad_request", "the request is not valid HTTP/1.1")

    def _refuse(self, code: str, message: str) -> None:
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            body = encode_json({"error": fault(code, message)})
            head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (JSON.encode(), len(body))
            self.transport.write(STATUS_LINE[CODES[code][0]] + head + body)
        self.transport.close()


class WebSocketConnection(WriteTimeout, WebSocketsSansIOProtocol):
    """WebSocket connection with a limit on the number of fragments per message.

    Bytes of incomplete messages count towards the server's budget.
    """

    _received = 0  # bytes received since the last complete message
    _held = 0  # bytes that count towards the budget

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > FREE and not self._hold():
            self.conn.fail(1013, "the server has received too much data; try again later")
            self.handle_parser_exception()
            return
        WebSocketsSansIOProtocol.data_received(self, data)

    def send_receive_event_to_app(self) -> None:
        self._received = 0
        self._release()
        WebSocketsSansIOProtocol.send_receive_event_to_app(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        WebSocketsSansIOProtocol.connection_lost(self, exc)

    def _hold(self) -> bool:
        more = self._received - self._held
        if not self._budget.hold(more):
            return False
        self._held += more
        return True

    def _release(self) -> None:
        if self._held:
            self._budget.give_back(self._held)
            self._held = 0

    @property
    def _budget(self) -> ByteBudget:
        budget: ByteBudget = self.config.app.dispatcher.budget  # type: ignore[union-attr]  # the app is an `App`
        return budget

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # so that uvicorn does not log a refused handshake as an error

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MAX_FRAGMENTS:  # empty fragments do not count toward the size limit
            self.conn.fail(1009, "a message has too many fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)


def check_connections(connections: Any, timeout: float) -> None:
    """Disconnect all clients that need more than `timeout` seconds to send a request or to read a response."""
    now = monotonic()
    for connection in list(connections):
        if isinstance(connection, HttpConnection):
            connection.check(now, timeout)
        elif isinstance(connection, WebSocketConnection):
            connection.check_write(now, timeout)

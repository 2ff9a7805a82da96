"""Uvicorn's HTTP and WebSocket protocols with limits for clients that are too slow or send too much data.

Uvicorn waits indefinitely for the end of a request and for the client to read the response, and it buffers any number
of header lines and message fragments. These classes limit the size of the request head, the time for a request and its
response, and the number of fragments of a message. A client that exceeds a limit receives an error and is disconnected.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from palestra.remote.protocol import CODES, JSON, encode_json, fault

if TYPE_CHECKING:
    from websockets.frames import Frame

MAX_HEAD = 1 << 16  # maximum bytes of the request line and headers
MAX_OVERHEAD = 8  # maximum bytes received per byte of the body limit; chunks of one byte need six
MAX_FRAGMENTS = 4_096  # maximum number of fragments per WebSocket message


class WriteTimeout:
    """Disconnects clients that do not read their responses."""

    transport: Any
    _unread = 0  # bytes in the write buffer at the last check
    _unread_since = 0.0

    def check_write(self, now: float, timeout: float) -> None:
        unread = self.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._unread, self._unread_since = unread, now
        elif now - self._unread_since > timeout:
            self.transport.abort()  # `close` would wait until the buffer is empty


class HttpConnection(WriteTimeout, HttpToolsProtocol):
    """HTTP connection of one client."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._max_overhead = MAX_OVERHEAD * self.config.ws_max_size  # ws_max_size is also the limit of a body
        self._overhead = 0  # received bytes of this request that are not part of its body
        self._state: tuple[Any, bool] = (None, False)  # state of the request at the last check
        self._state_since = monotonic()

    # The next three methods run for every request. They name the base class because `super()` is measurably slower.

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
            self._refuse("too_large", f"the head of a request may have at most {MAX_HEAD:,} bytes")
        elif self._overhead > self._max_overhead and self.cycle is not None and self.cycle.more_body:
            self._refuse("too_large", "the chunk encoding of the body is too large")

    def check(self, now: float, timeout: float) -> None:
        """Disconnect a client that takes too long to send its request or to read the response."""
        self.check_write(now, timeout)
        cycle = self.cycle
        idle = cycle is None or cycle.response_complete
        keep_alive = idle and self.timeout_keep_alive_task is not None and not cycle.more_body
        if self.pipeline or keep_alive or (not idle and not cycle.more_body):
            self._state = (None, False)  # being served, or idle, for which uvicorn has a timeout
            return
        state = (cycle, idle)
        if state != self._state:
            self._state, self._state_since = state, now
        elif now - self._state_since > timeout:
            self._refuse("too_slow", f"a request must arrive within {timeout:g} s")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # the error response is JSON
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
    """WebSocket connection of one client."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # otherwise uvicorn logs a refused handshake as an error

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MAX_FRAGMENTS:  # empty fragments do not count toward the size limit
            self.conn.fail(1009, "a message has too many fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)


def check_connections(connections: Any, timeout: float) -> None:
    """Disconnect all clients that exceed `timeout` seconds while sending a request or reading a response."""
    now = monotonic()
    for connection in list(connections):
        if isinstance(connection, HttpConnection):
            connection.check(now, timeout)
        elif isinstance(connection, WebSocketConnection):
            connection.check_write(now, timeout)

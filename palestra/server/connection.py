"""Connections that cannot be held or filled: uvicorn's own, with limits on what comes before a request is whole.

Uvicorn waits for ever for a request's end and for an answer to be read, and keeps header lines and pieces of messages
however many there are. Here a head has a size, a request and an answer have a time, a message has so many pieces;
whoever goes past that is told so and hung up on.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from palestra.remote.protocol import CODES, JSON, encode_json, fault

if TYPE_CHECKING:
    from websockets.frames import Frame

MOST_HEAD = 1 << 16  # bytes of a request's first lines
OVERHEAD = 8  # times a body's limit that may come around it: chunks of one byte need six
MOST_PIECES = 4_096  # of one message on the socket


class Reader:
    """Whether a client takes what it is sent."""

    transport: Any
    _unread = 0  # bytes, at the last look
    _unread_since = 0.0

    def look_at_reader(self, now: float, patience: float) -> None:
        """Closing would wait for what is unread, so it is cut off."""
        unread = self.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._unread, self._unread_since = unread, now
        elif now - self._unread_since > patience:
            self.transport.abort()


class HttpConnection(Reader, HttpToolsProtocol):
    """One client's connection."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._most = OVERHEAD * self.config.ws_max_size  # which is what a body may have
        self._around = 0  # bytes of this request that are not its body
        self._stage: tuple[Any, bool] = (None, False)  # what was seen of it at the last look
        self._since = monotonic()  # and since when it is so

    # These three are called for every request: they name the class, since `super()` costs more than what they do.

    def on_message_begin(self) -> None:
        self._around = 0
        HttpToolsProtocol.on_message_begin(self)

    def on_body(self, body: bytes) -> None:
        self._around -= len(body)
        HttpToolsProtocol.on_body(self, body)

    def data_received(self, data: bytes) -> None:
        self._around += len(data)
        HttpToolsProtocol.data_received(self, data)
        if self._around > MOST_HEAD:
            self._weigh()

    def _weigh(self) -> None:
        """Refuse a head that is too large, and what comes around a body where it is too much."""
        heading = self.scope is None or "method" not in self.scope
        if heading:
            self._refuse("too_large", f"a request's head has at most {MOST_HEAD:,} bytes")
        elif self._around > self._most and self.cycle is not None and self.cycle.more_body:
            self._refuse("too_large", "that is no body but what surrounds one")

    def look(self, now: float, patience: float) -> None:
        """Called now and then: hang up on a client that takes too long to say what it wants, or to listen."""
        self.look_at_reader(now, patience)
        cycle = self.cycle
        idle = cycle is None or cycle.response_complete
        waits = idle and self.timeout_keep_alive_task is not None and not cycle.more_body
        if self.pipeline or waits or (not idle and not cycle.more_body):
            self._stage = (None, False)  # it is served, or waits to be asked again, for which uvicorn has a clock
            return
        stage = (cycle, idle)
        if stage != self._stage:
            self._stage, self._since = stage, now
        elif now - self._since > patience:
            self._refuse("too_slow", f"a request arrives within {patience:g} s")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's words
        self._refuse("bad_request", "this is not HTTP/1.1")

    def _refuse(self, code: str, message: str) -> None:
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            body = encode_json({"error": fault(code, message)})
            head = b"content-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (JSON.encode(), len(body))
            self.transport.write(STATUS_LINE[CODES[code][0]] + head + body)
        self.transport.close()


class Socket(Reader, WebSocketsSansIOProtocol):
    """A connection that has become a socket."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # it was refused with an answer; uvicorn would log that as an error

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MOST_PIECES:  # empty ones would go on for ever, whatever a message may weigh
            self.conn.fail(1009, "a message comes in fewer pieces")
            self.handle_parser_exception()
            return
        super().handle_cont(event)


def look_at(connections: Any, patience: float) -> None:
    """See to all of a server's; `patience`: seconds for a request to arrive, and for an answer to be read."""
    now = monotonic()
    for one in list(connections):
        if isinstance(one, HttpConnection):
            one.look(now, patience)
        elif isinstance(one, Socket):
            one.look_at_reader(now, patience)

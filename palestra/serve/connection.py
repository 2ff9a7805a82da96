"""Connections that cannot be held or filled: uvicorn's own, with limits on what comes before a request is whole.

Uvicorn waits for ever for a request's end, and keeps header lines and pieces of messages however many there are. Here a
head has a size, a request has a time, a message has so many pieces; whoever goes past that is told so and hung up on.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from palestra.serve.protocol import CODES, JSON, encode_json, fault

if TYPE_CHECKING:
    from websockets.frames import Frame

MOST_HEAD = 1 << 16  # bytes of a request's first lines
OVERHEAD = 8  # times a body's limit that may come around it: chunks of one byte need six
PATIENCE = 60.0  # seconds for a request to arrive
MOST_PIECES = 4_096  # of one message on the socket


class HttpConnection(HttpToolsProtocol):
    """One client's connection."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._most = OVERHEAD * self.config.ws_max_size  # which is what a body may have
        self._heading = True  # the head is not whole
        self._around = 0  # bytes of this request that are not its body
        self._stage: tuple[Any, bool] = (None, False)  # what was seen of it at the last look
        self._since = monotonic()  # and since when it is so

    def on_message_begin(self) -> None:
        self._heading = True
        self._around = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._heading = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._around -= len(body)
        super().on_body(body)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._around += len(data)
        super().data_received(data)
        if self._around > (MOST_HEAD if self._heading else self._most) and not self._whole:
            self._refuse("too_large", f"a request's head has at most {MOST_HEAD:,} bytes")

    @property
    def _whole(self) -> bool:
        """Is nothing of a request missing?"""
        return not self._heading and self.cycle is not None and not self.cycle.more_body

    def look(self, now: float) -> None:
        """Called every few seconds: hang up on a client that takes too long to say what it wants."""
        cycle = self.cycle
        idle = cycle is None or cycle.response_complete
        if self.pipeline or (not idle and not cycle.more_body) or self.timeout_keep_alive_task is not None:
            self._stage = (None, False)  # it is served, or waits to be asked again, for which uvicorn has a clock
            return
        stage = (cycle, idle)
        if stage != self._stage:
            self._stage, self._since = stage, now
        elif now - self._since > PATIENCE:
            self._refuse("too_slow", f"a request arrives within {PATIENCE:g} s")

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


class Socket(WebSocketsSansIOProtocol):
    """A connection that has become a socket."""

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MOST_PIECES:  # empty ones would go on for ever, whatever a message may weigh
            self.conn.fail(1009, "a message comes in fewer pieces")
            self.handle_parser_exception()
            return
        super().handle_cont(event)


def look_at(connections: Any) -> None:
    """See to all of a server's."""
    now = monotonic()
    for one in list(connections):
        if isinstance(one, HttpConnection):
            one.look(now)

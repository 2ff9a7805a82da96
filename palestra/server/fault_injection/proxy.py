"""Proxy that delays, drops, duplicates, reorders and corrupts a server's responses.

Requests are forwarded unchanged. Data from the server is split into HTTP responses or WebSocket messages, and random
faults are injected into some of them. `seed` determines the faults.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from palestra.errors import BadValue

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """Probability of each kind of fault, per response."""

    drop: float = 0.0  # the server executes the request, but the connection is closed before the response is sent
    delay: float = 0.0  # the response is delayed by `seconds`
    duplicate: float = 0.0  # the response is sent twice
    reorder: float = 0.0  # the response is sent after the next response on the same connection
    half_open: float = 0.0  # no further data is sent, but the connection stays open
    garbage: float = 0.0  # random bytes are sent instead of the response, and the connection is closed

    def draw(self, rng: Random) -> str:
        """Sample the name of a fault, or "pass" for no fault."""
        drawn = rng.random()
        for name in self.__slots__:
            rate: float = getattr(self, name)
            if drawn < rate:
                return str(name)
            drawn -= rate
        return "pass"


class FaultyProxy:
    """Proxy for the server at `url`, which injects faults with the given rates.

    Its `url` is the address for clients, and `counts` contains the number of faults of each kind.

    with FaultyProxy("http://localhost:8100", drop=0.01, seed=1) as faulty:
        env = palestra.make(f"{faulty.url}/game:Wordle-v0-hard", recover="replay")
    """

    def __init__(self, url: str, *, seconds: float = 0.2, seed: int = 0, **rates: float) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise BadValue(f"the server URL must be http://HOST:PORT, got {url!r}")
        names = FaultRates.__slots__
        for name, rate in rates.items():
            if name not in names:
                raise BadValue(f"unknown fault {name!r}; choose from {', '.join(names)}")
            if not 0.0 <= rate <= 1.0:
                raise BadValue(f"{name} must be a probability between 0 and 1, got {rate!r}")
        self._target = (parts.hostname, parts.port or 80)
        self._rates = FaultRates(**rates)
        self._seconds = seconds
        self._rng = Random(seed)
        self.counts: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="palestra-faults", daemon=True)
        self._ready = threading.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections and stop the proxy."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end(server))
            self._loop.close()

    async def _end(self, server: asyncio.Server) -> None:
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # give the sockets time to close

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, server_writer}
        responses = asyncio.create_task(self._forward_responses(server_reader, writer))
        try:
            while data := await reader.read(CHUNK):
                server_writer.write(data)
                await server_writer.drain()
        except OSError:
            pass
        finally:
            server_writer.close()
            await asyncio.wait([responses], timeout=1.0)
            responses.cancel()
            writer.close()
            self._writers -= {writer, server_writer}

    async def _forward_responses(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward responses from the server to the client and inject faults."""
        delayed: bytes | None = None  # response to send after the next one
        upgraded = False
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                if upgraded:
                    response = await _read_message(reader)
                else:
                    response, upgraded = await _read_response(reader)
                    if upgraded:  # the handshake is forwarded unchanged
                        writer.write(response)
                        continue
                fault = self._rates.draw(self._rng)
                self.counts[fault] += 1
                if fault == "drop":
                    break
                if fault == "half_open":
                    await asyncio.sleep(3_600)
                if fault == "garbage":
                    writer.write(self._rng.randbytes(64))
                    break
                if fault == "delay":
                    await asyncio.sleep(self._seconds)
                if fault == "reorder" and delayed is None and upgraded:
                    delayed = response
                    self._send_later(writer, delayed)
                    continue
                writer.write(response)
                if fault == "duplicate":
                    writer.write(response)
                if delayed is not None:
                    writer.write(delayed)
                    delayed = None
                await writer.drain()
        writer.transport.abort()

    def _send_later(self, writer: asyncio.StreamWriter, response: bytes) -> None:
        """Send `response` after a delay, in case no other response follows. The client may receive it twice."""

        def send() -> None:
            if not writer.is_closing():
                writer.write(response)

        self._loop.call_later(self._seconds, send)


async def _read_response(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    """Return one HTTP response, and whether it upgrades the connection to a WebSocket."""
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    if head.startswith(b"HTTP/1.1 101"):
        return head, True
    if b"\r\ntransfer-encoding: chunked" in lower:
        body = b""
        while True:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            body += line + await reader.readexactly(size + 2)
            if size == 0:
                return head + body, False
    _, _, rest = lower.partition(b"\r\ncontent-length:")
    return head + await reader.readexactly(int(rest.partition(b"\r\n")[0] or b"0")), False


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """Read one WebSocket message from a server, including all its fragments."""
    message = b""
    while True:
        head = await reader.readexactly(2)
        size = head[1] & 0x7F
        more = b""
        if size == 126:
            more = await reader.readexactly(2)
            size = int.from_bytes(more, "big")
        elif size == 127:
            more = await reader.readexactly(8)
            size = int.from_bytes(more, "big")
        message += head + more + await reader.readexactly(size)
        if head[0] & 0x80:
            return message

"""FaultyServer: stands before a server and spoils what passes: late, lost, twice, out of order, half-open.

It relays connections byte for byte towards the server. What comes back is cut into answers (HTTP responses, WebSocket
messages), and each of them meets its fate, drawn from `seed`.
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
class Fates:
    """The probabilities of what happens to one answer; what is left passes as it is."""

    drop: float = 0.0  # carried out, but the connection breaks before the answer
    delay: float = 0.0  # `seconds` late
    duplicate: float = 0.0  # twice
    reorder: float = 0.0  # after the next answer on its connection
    half_open: float = 0.0  # nothing comes any more, and the connection stays
    garbage: float = 0.0  # bytes that mean nothing, then the end

    def draw(self, rng: Random) -> str:
        drawn = rng.random()
        for name in self.__slots__:
            rate: float = getattr(self, name)
            if drawn < rate:
                return str(name)
            drawn -= rate
        return "pass"


class FaultyServer:
    """A server like the one at `url`, but worse. `url` of this one is where clients go; `counts` tells what happened.

    with FaultyServer("http://localhost:8100", drop=0.01, seed=1) as faulty:
        env = palestra.make(f"{faulty.url}/game:Wordle-v0-hard", recover="replay")
    """

    def __init__(self, url: str, *, seconds: float = 0.2, seed: int = 0, **fates: float) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise BadValue(f"a server's address reads http://HOST:PORT, got {url!r}")
        known = Fates.__slots__
        for name, rate in fates.items():
            if name not in known:
                raise BadValue(f"{name!r} is none of {', '.join(known)}")
            if not 0.0 <= rate <= 1.0:
                raise BadValue(f"{name} is a probability, from 0 to 1, got {rate!r}")
        self._target = (parts.hostname, parts.port or 80)
        self._fates = Fates(**fates)
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
        """Break every connection."""
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
        await asyncio.sleep(0.01)  # for the sockets to close

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        answers = asyncio.create_task(self._answers(far_reader, writer))
        try:
            while data := await reader.read(CHUNK):
                far_writer.write(data)
                await far_writer.drain()
        except OSError:
            pass
        finally:
            far_writer.close()
            await asyncio.wait([answers], timeout=1.0)
            answers.cancel()
            writer.close()
            self._writers -= {writer, far_writer}

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """From the server to the client, one answer at a time."""
        held: bytes | None = None  # one that waits for the next
        upgraded = False
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                if upgraded:
                    answer = await _message(reader)
                else:
                    answer, upgraded = await _response(reader)
                    if upgraded:  # the handshake itself is let through
                        writer.write(answer)
                        continue
                fate = self._fates.draw(self._rng)
                self.counts[fate] += 1
                if fate == "drop":
                    break
                if fate == "half_open":
                    await asyncio.sleep(3_600)
                if fate == "garbage":
                    writer.write(self._rng.randbytes(64))
                    break
                if fate == "delay":
                    await asyncio.sleep(self._seconds)
                if fate == "reorder" and held is None and upgraded:
                    held = answer
                    self._later(writer, held)
                    continue
                writer.write(answer)
                if fate == "duplicate":
                    writer.write(answer)
                if held is not None:
                    writer.write(held)
                    held = None
                await writer.drain()
        writer.transport.abort()

    def _later(self, writer: asyncio.StreamWriter, held: bytes) -> None:
        """Where no other answer follows, one that was held back comes all the same, as its own duplicate might."""

        def send() -> None:
            if not writer.is_closing():
                writer.write(held)

        self._loop.call_later(self._seconds, send)


async def _response(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    """One HTTP response, and whether it turns the connection into a WebSocket."""
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


async def _message(reader: asyncio.StreamReader) -> bytes:
    """One WebSocket message of a server's, whole."""
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

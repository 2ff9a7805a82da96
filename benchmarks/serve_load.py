"""Load generator for serve.py: clients with one request in flight each, over HTTP or WebSocket.

The clients are protocols on asyncio transports, so that they need little CPU time compared with the server. All servers
get the same clients.
"""

from __future__ import annotations

import asyncio
import base64
import os
import struct
from collections.abc import Callable
from time import perf_counter
from typing import Any

MakeRequest = Callable[[int, int], bytes]  # (client, index of the request) -> request


class Meter:
    """Records the latencies of all responses until `stopped`."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.stopped = False
        self.error: bytes | None = None  # the first error response


class HttpClient(asyncio.Protocol):
    """One connection that sends the next request after each response."""

    def __init__(self, client: int, make: MakeRequest, meter: Meter) -> None:
        self.client, self.make, self.meter = client, make, meter
        self.buffer = b""
        self.number = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.sent_at = perf_counter()
        self.transport.write(self.make(self.client, self.number))
        self.number += 1

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, separator, body = self.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        _, _, rest = head.lower().partition(b"content-length:")
        if len(body) < int(rest.partition(b"\r\n")[0]):
            return
        if not head.startswith(b"HTTP/1.1 2"):
            self.meter.error = self.meter.error or self.buffer[:500]
        self.buffer = b""
        self.meter.times.append(perf_counter() - self.sent_at)
        if self.meter.stopped:
            self.transport.close()
        else:
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.done.done():
            self.done.set_result(None)


class SocketClient(asyncio.Protocol):
    """One WebSocket for all `clients`; `count` returns the number of responses in a message."""

    def __init__(
        self, path: str, clients: list[int], make: MakeRequest, meter: Meter, count: Callable[[bytes], list[int]]
    ) -> None:
        self.path, self.clients, self.make, self.meter, self.count = path, clients, make, meter, count
        self.buffer = bytearray()
        self.open = False
        self.numbers = dict.fromkeys(clients, 0)
        self.sent_at = dict.fromkeys(clients, 0.0)
        self.left = len(clients)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(
            f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.open:
            head, separator, rest = bytes(self.buffer).partition(b"\r\n\r\n")
            if not separator:
                return
            assert b" 101 " in head, head
            self.open = True
            self.buffer = bytearray(rest)
            self.send(self.clients)
        ready: list[int] = []
        while (message := self.message()) is not None:
            ready += self.count(message)
        if ready:
            now = perf_counter()
            self.meter.times.extend(now - self.sent_at[client] for client in ready)
            if self.meter.stopped:
                self.left -= len(ready)
                if self.left <= 0:
                    self.transport.close()
            else:
                self.send(ready)

    def message(self) -> bytes | None:
        """Return the next complete message; fragments and pings do not occur here."""
        buffer = self.buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1], 2
        if size == 126:
            if len(buffer) < 4:
                return None
            size, start = struct.unpack(">H", buffer[2:4])[0], 4
        elif size == 127:
            if len(buffer) < 10:
                return None
            size, start = struct.unpack(">Q", buffer[2:10])[0], 10
        if len(buffer) < start + size:
            return None
        message = bytes(buffer[start : start + size])
        del buffer[: start + size]
        return message

    def send(self, clients: list[int]) -> None:
        now = perf_counter()
        parts = []
        for client in clients:
            parts.append(self.make(client, self.numbers[client]))
            self.numbers[client] += 1
            self.sent_at[client] = now
        if len(self.clients) == 1:
            self.transport.write(frame(parts[0]))
        else:
            self.transport.write(frame(b"[" + b",".join(parts) + b"]"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.done.done():
            self.done.set_result(None)


def frame(data: bytes) -> bytes:
    """Return a text message, masked with zeros, which is valid and needs no computation."""
    size = len(data)
    if size < 126:
        head = struct.pack(">BB", 0x81, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", 0x81, 0xFE, size)
    else:
        head = struct.pack(">BBQ", 0x81, 0xFF, size)
    return head + b"\0\0\0\0" + data


async def load(
    port: int, clients: list[Callable[[Meter], asyncio.Protocol]], seconds: float
) -> tuple[float, list[float]]:
    """Return the responses per second and the sorted latencies."""
    loop = asyncio.get_running_loop()
    meter = Meter()
    started = perf_counter()
    connected: list[Any] = []
    for make in clients:
        _, client = await loop.create_connection(lambda make=make: make(meter), "127.0.0.1", port)  # type: ignore[misc]
        connected.append(client)
    await asyncio.sleep(seconds)
    meter.stopped = True
    seconds_taken = perf_counter() - started
    count = len(meter.times)
    await asyncio.wait([client.done for client in connected], timeout=10)
    if meter.error is not None:
        raise SystemExit(f"a request was rejected: {meter.error!r}")
    return count / seconds_taken, sorted(meter.times)

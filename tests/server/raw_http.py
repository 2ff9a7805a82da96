"""Helpers that send raw bytes to a server while another client checks that the server still works."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
from websockets.sync.client import ClientConnection

from palestra import make
from tests.server.servers import GUESS, Client, Server, until


class OtherClient:
    """Client that plays episodes in a thread and compares every result with a local environment."""

    def __init__(self, server: Server, token: str) -> None:
        self.steps = 0
        self.wrong: list[Any] = []
        self._client = Client(server.url, token=token)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def _play(self) -> None:
        try:
            with make(GUESS) as env, self._client as client:
                play = client.open(GUESS)
                seed = 0
                while not self._stop.is_set():
                    seed += 1
                    here, info = env.reset(seed=seed)
                    self._compare({"observation": here, "info": info}, play.reset(seed=seed))
                    done = False
                    while not done and not self._stop.is_set():
                        action = env.sample_random_action()
                        step = env.step(action)
                        self._compare(step._asdict(), play.step(action))
                        done = step.done
                        self._stop.wait(0.01)  # limits the load on the server
                play.close()
        except Exception as err:  # noqa: BLE001  # `check` and `stop` report it
            self.wrong.append(err)

    def _compare(self, here: dict[str, Any], there: Any) -> None:
        self.steps += 1
        if there.status != 200 or {**there.data, "seq": 0} != {**here, "seq": 0}:
            self.wrong.append((here, there))

    def check(self) -> None:
        """Check that there was no error so far and that the client can still take steps."""
        before = self.steps
        until(lambda: self.steps >= before + 3 or self.wrong)
        assert not self.wrong

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self.wrong


@contextlib.contextmanager
def check_isolation(server: Server, other_client: OtherClient, token: str, *, megabytes: int = 64) -> Iterator[None]:
    """Check that the `with` block leaks no resources and does not affect the other client."""
    with server.client(token=token) as client:
        sessions = server.number("sessions", client)
        handles, memory = server.handles(), server.memory()
        workers = [worker.pid for worker in server.workers()]
        logged = len(server.lines)
        yield
        until(lambda: server.number("sessions", client) == sessions)
        until(lambda: server.number("websockets", client) == 0)
        until(lambda: server.number("calls_in_flight", client) <= 1)  # the other client may have one call in flight
        until(lambda: server.handles() <= handles)
    assert [worker.pid for worker in server.workers()] == workers
    assert server.memory() < memory + megabytes * 2**20
    errors = [line["event"] for line in server.lines[logged:] if line["level"] == "error"]
    assert {*errors} <= {"Invalid UTF-8 sequence received from client."}
    other_client.check()


def connect(server: Server) -> socket.socket:
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=120)


def raw(server: Server, *pieces: bytes, half: bool = True) -> bytes:
    """Send raw bytes and read until the server disconnects. With `half`, close our side after sending."""
    with connect(server) as sock:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                sock.sendall(piece)
            if half:
                sock.shutdown(socket.SHUT_WR)
        return read_all(sock)


def read_head(sock: socket.socket) -> bytes:
    """Return the head of a response, which may arrive in parts, and leave what follows it in the socket's buffer."""
    received = bytearray()
    while not received.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        assert byte, f"the server disconnected after {bytes(received)!r}"
        received += byte
    return bytes(received)


def read_all(sock: socket.socket) -> bytes:
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(1 << 16):
            received += data
    return bytes(received)


def statuses(response: bytes) -> list[int]:
    """Return the status codes of all HTTP responses in `response`."""
    return [int(part[:3]) for part in response.split(b"HTTP/1.1 ")[1:]]


def request(ws: ClientConnection, data: Any) -> Any:
    """Send a request on a WebSocket and return the response."""
    ws.send(msgspec.json.encode(data).decode())
    return msgspec.json.decode(ws.recv(timeout=120))

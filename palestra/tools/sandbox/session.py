"""A stateful session: cells in, a Result each, variables live on."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from palestra.errors import BadValue
from palestra.tools.sandbox.records import LIMITS, Result
from palestra.tools.sandbox.request import PATIENCE, Request
from palestra.tools.sandbox.worker import SandboxDied

GRACE = 1.0  # seconds an interrupted cell has to come back, so that its variables are kept


class Session:
    """An interpreter of one's own. One cell at a time; another caller waits.

    A cell that runs out of time is interrupted, as with Ctrl-C; where that does not help, the session ends. A session
    that has ended (`Result.ended`) runs no more cells: make another.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._lock = threading.Lock()
        self.ended = False

    def run(self, code: str) -> Result:
        """Run one cell."""
        with self._lock:
            source = self._begin(code)
            began = perf_counter()
            channel = _channel(self._request)
            wall = self._request.limits.wall
            limit, said = "", b""
            try:
                channel.settimeout(wall)
                channel.sendall(source)
                said = channel.recv(4096)
            except TimeoutError:
                limit = "time"
                self._interrupt()
                channel.settimeout(GRACE)
                said = _received(channel)
            except OSError:
                said = b""
            if not _is_answer(said):
                self._request.connection.settimeout(PATIENCE)
                return self._over(limit, _last(self._request, kill=bool(limit or said)), began)
            return self._done(said, limit, began)

    async def arun(self, code: str) -> Result:
        """`run`, without blocking the event loop; cancelling it ends the session."""
        if not self._lock.acquire(blocking=False):
            await asyncio.to_thread(self._lock.acquire)
        try:
            source = self._begin(code)
            began = perf_counter()
            channel = _channel(self._request)
            channel.setblocking(False)
            loop = asyncio.get_running_loop()
            wall = self._request.limits.wall
            limit, said = "", b""
            try:
                async with asyncio.timeout(wall):
                    await loop.sock_sendall(channel, source)
                    said = await loop.sock_recv(channel, 4096)
            except TimeoutError:
                limit = "time"
                self._interrupt()
                try:
                    async with asyncio.timeout(GRACE):
                        said = await loop.sock_recv(channel, 4096)
                except (TimeoutError, OSError):
                    said = b""
            except OSError:
                said = b""
            if not _is_answer(said):
                self._request.connection.settimeout(PATIENCE)
                answer = await asyncio.to_thread(_last, self._request, kill=bool(limit or said))
                return self._over(limit, answer, began)
            return self._done(said, limit, began)
        except asyncio.CancelledError:
            self.ended = True
            self._request.close()
            raise
        finally:
            self._lock.release()

    def _begin(self, code: str) -> bytes:
        if self.ended:
            raise BadValue("this session has ended; make another with sandbox.session()")
        if not isinstance(code, str):
            raise BadValue(f"code is a string, got {type(code).__name__}")
        source = code.encode("utf-8", "surrogatepass")
        return struct.pack("<I", len(source)) + source

    def _interrupt(self) -> None:
        try:
            self._request.connection.send(b"interrupt")
        except OSError:
            return

    def _done(self, said: bytes, limit: str, began: float) -> Result:
        answer: dict[str, Any] = json.loads(said)
        limit = limit or (answer["limit"] if answer["limit"] in LIMITS else "")
        result = self._request.written(
            limit=limit,
            exit_code=answer["exit"],
            signalled=None,
            ended={"seconds": round(perf_counter() - began, 6)},
        )
        self._request.empty()
        return result

    def _over(self, limit: str, answer: bytes, began: float) -> Result:
        """The interpreter has ended in this cell."""
        self.ended = True
        try:
            ended = self._request.ended(answer)
            return self._request.written(
                limit=ended["limit"] or limit,
                exit_code=ended["exit"],
                signalled=ended["signal"],
                ended={"seconds": round(perf_counter() - began, 6)},
                over=True,
            )
        finally:
            self._request.close()

    def close(self) -> None:
        """End the interpreter and all it started. May be called twice."""
        self.ended = True
        self._request.close()

    async def aclose(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _channel(request: Request) -> Any:
    if request.channel is None:
        raise BadValue("not a session")
    return request.channel


def _received(channel: Any) -> bytes:
    try:
        return bytes(channel.recv(4096))
    except OSError:
        return b""


def _is_answer(said: bytes) -> bool:
    """A session's program can write to its channel what it likes; only a plain answer counts."""
    try:
        answer = json.loads(said)
        return isinstance(answer["exit"], int) and isinstance(answer["limit"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _last(request: Request, *, kill: bool) -> bytes:
    """What the template says of the end."""
    try:
        if kill:
            request.connection.send(b"kill")
        return request.connection.recv(65536)
    except OSError as err:
        raise SandboxDied(f"the sandbox does not answer: {err}") from err

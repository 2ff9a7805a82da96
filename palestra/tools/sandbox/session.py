"""Stateful session: one interpreter that runs cells and keeps its variables between them."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from palestra.errors import BadValue
from palestra.tools.sandbox.request import REPLY_MARGIN, ProgramRequest
from palestra.tools.sandbox.template_process import SandboxDied
from palestra.tools.sandbox.types import LIMITS, Result

INTERRUPT_GRACE = 3.0  # seconds for an interrupted cell to return before the session is terminated


class SandboxSession:
    """A sandboxed interpreter that runs one cell at a time; concurrent callers wait.

    A cell that exceeds its time limit is interrupted as if by Ctrl-C; if it does not return, the session is terminated.
    After that (`Result.ended`), the session runs no more cells.
    """

    def __init__(self, request: ProgramRequest) -> None:
        self._request = request
        self._lock = threading.Lock()
        self.ended = False

    def run(self, code: str) -> Result:
        """Run one cell."""
        with self._lock:
            source = self._encoded(code)
            start = perf_counter()
            channel = _channel(self._request)
            limit, reply = "", b""
            try:
                channel.settimeout(self._request.limits.wall)
                channel.sendall(source)
                reply = channel.recv(4096)
            except TimeoutError:
                limit = "time"
                self._interrupt()
                channel.settimeout(INTERRUPT_GRACE)
                reply = _receive(channel)
            except OSError:
                reply = b""
            if not _is_valid(reply):
                self._request.connection.settimeout(REPLY_MARGIN)
                return self._ended(limit, _final_reply(self._request, kill=bool(limit or reply)), start)
            return self._completed(reply, limit, start)

    async def arun(self, code: str) -> Result:
        """Run one cell without blocking the event loop; canceling the call terminates the session."""
        if not self._lock.acquire(blocking=False):
            await asyncio.to_thread(self._lock.acquire)
        try:
            source = self._encoded(code)
            start = perf_counter()
            channel = _channel(self._request)
            channel.setblocking(False)
            loop = asyncio.get_running_loop()
            limit, reply = "", b""
            try:
                async with asyncio.timeout(self._request.limits.wall):
                    await loop.sock_sendall(channel, source)
                    reply = await loop.sock_recv(channel, 4096)
            except TimeoutError:
                limit = "time"
                self._interrupt()
                try:
                    async with asyncio.timeout(INTERRUPT_GRACE):
                        reply = await loop.sock_recv(channel, 4096)
                except (TimeoutError, OSError):
                    reply = b""
            except OSError:
                reply = b""
            if not _is_valid(reply):
                self._request.connection.settimeout(REPLY_MARGIN)
                final = await asyncio.to_thread(_final_reply, self._request, kill=bool(limit or reply))
                return self._ended(limit, final, start)
            return self._completed(reply, limit, start)
        except asyncio.CancelledError:
            self.ended = True
            self._request.close()
            raise
        finally:
            self._lock.release()

    def _encoded(self, code: str) -> bytes:
        if self.ended:
            raise BadValue("this session has ended; open another with sandbox.session()")
        if not isinstance(code, str):
            raise BadValue(f"`code` must be a string, got {type(code).__name__}")
        source = code.encode("utf-8", "surrogatepass")
        return struct.pack("<I", len(source)) + source

    def _interrupt(self) -> None:
        try:
            self._request.connection.send(b"interrupt")
        except OSError:
            return

    def _completed(self, reply: bytes, limit: str, start: float) -> Result:
        outcome: dict[str, Any] = json.loads(reply)
        limit = limit or (outcome["limit"] if outcome["limit"] in LIMITS else "")
        result = self._request.output_result(
            limit=limit,
            exit_code=outcome["exit"],
            signal_number=None,
            outcome={"seconds": round(perf_counter() - start, 6)},
        )
        self._request.clear_output()
        return result

    def _ended(self, limit: str, reply: bytes, start: float) -> Result:
        """Return the result of a cell during which the interpreter exited or was killed."""
        self.ended = True
        try:
            outcome = self._request.parse_reply(reply)
            return self._request.output_result(
                limit=outcome["limit"] or limit,
                exit_code=outcome["exit"],
                signal_number=outcome["signal"],
                outcome={"seconds": round(perf_counter() - start, 6)},
                ended=True,
            )
        finally:
            self._request.close()

    def close(self) -> None:
        """Kill the interpreter and all processes it started. Idempotent."""
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


def _channel(request: ProgramRequest) -> Any:
    if request.channel is None:
        raise BadValue("the request is not for a session")
    return request.channel


def _receive(channel: Any) -> bytes:
    try:
        return bytes(channel.recv(4096))
    except OSError:
        return b""


def _is_valid(reply: bytes) -> bool:
    """Return whether the reply to a cell is well-formed; the program can write anything to its channel."""
    try:
        outcome = json.loads(reply)
        return isinstance(outcome["exit"], int) and isinstance(outcome["limit"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _final_reply(request: ProgramRequest, *, kill: bool) -> bytes:
    """Return the template's report on how the program ended; `kill` kills the program first."""
    try:
        if kill:
            request.connection.send(b"kill")
        return request.connection.recv(65536)
    except OSError as err:
        raise SandboxDied(f"the sandbox does not respond: {err}") from err

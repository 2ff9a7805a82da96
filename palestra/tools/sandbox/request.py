"""One program on its way through the sandbox: what it needs as descriptors, what comes back as a Result."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Mapping
from typing import Any

from palestra.errors import BadValue, ToolFailed
from palestra.tools.sandbox.inside.work import HEADER
from palestra.tools.sandbox.records import LIMITS, Limits, Result
from palestra.tools.sandbox.worker import SandboxDied, Worker, memory_file

PATIENCE = 20.0  # seconds beyond a program's own time after which the sandbox counts as hung


class Request:
    """Descriptors of one call; `close` gives them back, and ends the program if it still runs."""

    def __init__(
        self,
        *,
        kind: str,
        code: str = "",
        stdin: str | bytes = b"",
        files: Mapping[str, str | bytes] | None = None,
        limits: Limits,
        echo: bool,
        brief: bool,
        seed: int | None,
    ) -> None:
        self.limits = limits
        self._kind = kind
        self._handles: list[int] = []
        self.channel: socket.socket | None = None  # a session's cells and answers
        self._their_channel: socket.socket | None = None
        try:
            self.connection, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self._request = self._memory("request", _packed(code, files or {}, echo=echo, brief=brief, seed=seed))
                self._out = self._memory("out")
                self._err = self._memory("err")
                typed = stdin.encode("utf-8", "surrogatepass") if isinstance(stdin, str) else stdin
                self._stdin = self._memory("in", typed) if typed else None
                if kind == "session":
                    self.channel, self._their_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            except BaseException:
                self.close()
                raise
        except OSError as err:
            raise ToolFailed(f"no file descriptors are left for another program: {err}. Raise `ulimit -n`") from err

    def _memory(self, name: str, content: bytes = b"") -> int:
        handle = memory_file(name)
        self._handles.append(handle)
        view = memoryview(content)
        while view:
            view = view[os.write(handle, view) :]
        if content:
            os.lseek(handle, 0, os.SEEK_SET)
        return handle

    def send(self, worker: Worker) -> None:
        kind = self._kind if self._stdin is None else f"{self._kind}+"
        limits = json.dumps(self.limits.to_wire(once=self._kind == "run"))
        handles = [self._theirs.fileno(), self._request, self._out, self._err]
        if self._stdin is not None:
            handles.append(self._stdin)
        if self._their_channel is not None:
            handles.append(self._their_channel.fileno())
        worker.send(f"{kind} {limits}".encode(), handles)
        self._theirs.close()  # so that a template that dies is an end of file here
        if self._their_channel is not None:
            self._their_channel.close()

    def result(self, answer: bytes) -> Result:
        """The template's last word, and what the program wrote."""
        ended = self.ended(answer)
        noted = os.pread(self._request, 16, 0).decode("ascii", "replace") if self._kind == "run" else ""
        limit = ended["limit"] or (noted if noted in LIMITS and ended["exit"] else "")
        return self.written(limit=limit, exit_code=ended["exit"], signalled=ended["signal"], ended=ended)

    def ended(self, answer: bytes) -> dict[str, Any]:
        if not answer:
            raise SandboxDied("the sandbox died while a program ran in it")
        ended: dict[str, Any] = json.loads(answer)
        if "broken" in ended:
            raise SandboxDied(f"the sandbox could not be set up: {ended['broken']}")
        return ended

    def written(
        self, *, limit: str, exit_code: int | None, signalled: int | None, ended: Mapping[str, Any], over: bool = False
    ) -> Result:
        out, out_cut = self._read(self._out)
        err, err_cut = self._read(self._err)
        if (out_cut or err_cut) and limit in ("", "disk"):  # to the program its output is a file that may not grow
            limit = "output"
        return Result(
            stdout=out,
            stderr=err,
            status="limit" if limit else "ok" if exit_code == 0 else "error",
            limit=limit or None,  # type: ignore[arg-type]  # one of the names: checked above, or the template's own
            exit_code=exit_code,
            signal=None if signalled is None else _signal_name(signalled),
            duration=ended.get("seconds", 0.0),
            cpu=ended.get("cpu", 0.0),
            cut=out_cut or err_cut,
            ended=over,
        )

    def _read(self, handle: int) -> tuple[str, bool]:
        limit = self.limits.output
        data = os.pread(handle, limit + 1, 0)
        return data[:limit].decode("utf-8", "replace"), len(data) > limit

    def empty(self) -> None:
        """Make room for what the next cell writes."""
        for handle in (self._out, self._err):
            os.ftruncate(handle, 0)
            os.lseek(handle, 0, os.SEEK_SET)  # the program's own position, too: they share it

    def close(self) -> None:
        """May be called twice."""
        for end in (
            self.connection,
            self._theirs,
            self.channel,
            self._their_channel,
        ):
            if end is not None:
                end.close()
        while self._handles:
            os.close(self._handles.pop())


def _packed(code: str, files: Mapping[str, str | bytes], *, echo: bool, brief: bool, seed: int | None) -> bytes:
    source = code.encode("utf-8", "surrogatepass")
    contents: list[bytes] = []
    names: list[tuple[str, int]] = []
    for name, content in files.items():
        if name.startswith("/") or ".." in name.split("/") or "\0" in name or not name.strip("/."):
            raise BadValue(f"files have names below the program's directory, got {name!r}")
        contents.append(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        names.append((name, len(contents[-1])))
    listed = json.dumps(names).encode() if names else b""
    header = HEADER.pack(len(listed), len(source), echo, brief, seed is not None, (seed or 0) % 2**64)
    return b"".join([header, listed, source, *contents])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

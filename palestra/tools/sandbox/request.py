"""Request to run one program: open the file descriptors it needs, and convert its outcome to a `Result`."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Mapping
from typing import Any

from palestra.errors import BadValue, ToolFailed
from palestra.tools.sandbox.guest.job import HEADER
from palestra.tools.sandbox.template_process import SandboxDied, TemplateProcess, memory_file
from palestra.tools.sandbox.types import LIMITS, Limits, Result

REPLY_MARGIN = 60.0  # seconds past a program's time limit after which the sandbox is considered hung


class ProgramRequest:
    """File descriptors for one program; `close` releases them and kills the program if it is still running."""

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
        self.channel: socket.socket | None = None  # carries a session's cells and their replies
        self._remote_channel: socket.socket | None = None
        try:
            self.connection, self._remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self._job = self._memory("request", _packed(code, files or {}, echo=echo, brief=brief, seed=seed))
                self._out = self._memory("out")
                self._err = self._memory("err")
                content = stdin.encode("utf-8", "surrogatepass") if isinstance(stdin, str) else stdin
                self._stdin = self._memory("in", content) if content else None
                if kind == "session":
                    self.channel, self._remote_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
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

    def send(self, template: TemplateProcess) -> None:
        kind = self._kind if self._stdin is None else f"{self._kind}+"
        limits = json.dumps(self.limits.to_wire(once=self._kind == "run"))
        handles = [self._remote.fileno(), self._job, self._out, self._err]
        if self._stdin is not None:
            handles.append(self._stdin)
        if self._remote_channel is not None:
            handles.append(self._remote_channel.fileno())
        template.send(f"{kind} {limits}".encode(), handles)
        self._remote.close()  # so that the host reads end-of-file if the template exits
        if self._remote_channel is not None:
            self._remote_channel.close()

    def result(self, reply: bytes) -> Result:
        """Combine the template's reply with the program's output."""
        outcome = self.parse_reply(reply)
        note = os.pread(self._job, 16, 0).decode("ascii", "replace") if self._kind == "run" else ""
        limit = outcome["limit"] or (note if note in LIMITS and outcome["exit"] else "")
        return self.output_result(
            limit=limit, exit_code=outcome["exit"], signal_number=outcome["signal"], outcome=outcome
        )

    def parse_reply(self, reply: bytes) -> dict[str, Any]:
        if not reply:
            raise SandboxDied("the sandbox exited while it was running a program")
        outcome: dict[str, Any] = json.loads(reply)
        if "broken" in outcome:
            raise SandboxDied(f"the sandbox could not be set up: {outcome['broken']}")
        return outcome

    def output_result(
        self,
        *,
        limit: str,
        exit_code: int | None,
        signal_number: int | None,
        outcome: Mapping[str, Any],
        ended: bool = False,
    ) -> Result:
        out, out_cut = self._read(self._out)
        err, err_cut = self._read(self._err)
        if (out_cut or err_cut) and limit in ("", "disk"):  # output is written to files, and these count as disk
            limit = "output"
        return Result(
            stdout=out,
            stderr=err,
            status="limit" if limit else "ok" if exit_code == 0 else "error",
            limit=limit or None,  # type: ignore[arg-type]  # always a LimitName: checked above, or set by the template
            exit_code=exit_code,
            signal=None if signal_number is None else _signal_name(signal_number),
            duration=outcome.get("seconds", 0.0),
            cpu=outcome.get("cpu", 0.0),
            cut=out_cut or err_cut,
            ended=ended,
        )

    def _read(self, handle: int) -> tuple[str, bool]:
        limit = self.limits.output
        data = os.pread(handle, limit + 1, 0)
        return data[:limit].decode("utf-8", "replace"), len(data) > limit

    def clear_output(self) -> None:
        """Discard the output of the previous cell."""
        for handle in (self._out, self._err):
            os.ftruncate(handle, 0)
            os.lseek(handle, 0, os.SEEK_SET)  # the program shares this file offset

    def close(self) -> None:
        """Release the descriptors. Idempotent."""
        for end in (self.connection, self._remote, self.channel, self._remote_channel):
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
            raise BadValue(f"`files` must have relative paths below the program's directory, got {name!r}")
        contents.append(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        names.append((name, len(contents[-1])))
    listing = json.dumps(names).encode() if names else b""
    header = HEADER.pack(len(listing), len(source), echo, brief, seed is not None, (seed or 0) % 2**64)
    return b"".join([header, listing, source, *contents])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

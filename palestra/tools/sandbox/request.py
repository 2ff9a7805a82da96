"""Open the file descriptors for a request to the template, and convert program outcomes to `Result`s."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from palestra.errors import BadValue, ToolFailed
from palestra.tools.sandbox.guest.batch import BATCH_HEADER, ENTRY
from palestra.tools.sandbox.guest.job import HEADER
from palestra.tools.sandbox.template_process import ProgramKilled, SandboxDied, TemplateProcess, memory_file
from palestra.tools.sandbox.types import LIMITS, Limits, Result

KILLED = "the program was killed from outside the sandbox, probably because the machine ran out of memory"
REPLY_MARGIN = 60.0  # seconds past a program's time limit after which the sandbox is considered hung


class ProgramRequest:
    """File descriptors for one program; `close` releases them and kills the program if it is still running."""

    def __init__(self, *, kind: str, job: bytes, stdin: str | bytes = b"", limits: Limits) -> None:
        """Create the files; `job` is the result of `pack_program` or `pack_batch`."""
        self.limits = limits
        self._kind = kind
        self._handles: list[int] = []
        self.channel: socket.socket | None = None  # carries a session's cells and their replies
        self._remote_channel: socket.socket | None = None
        try:
            self.connection, self._remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self._job = self._memory("request", job)
                self._out = self._memory("out")
                self._err = self._memory("err")
                self._stdin = self._memory("in", encoded(stdin)) if stdin else None
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
        limits = json.dumps(self.limits.to_wire(self._kind))
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
        if outcome["killed"]:
            raise ProgramKilled(KILLED)
        return outcome

    def batch_results(self, reply: bytes) -> list[Result]:
        """Return the results of the first inputs, up to one whose program was killed from outside."""
        limit_of_batch = ""
        with contextlib.suppress(ProgramKilled):  # the supervisor was killed: the results so far are valid
            limit_of_batch = self.parse_reply(reply)["limit"]
        data = os.pread(self._out, os.fstat(self._out).st_size, 0)
        results: list[Result] = []
        at = 0
        while at + ENTRY.size <= len(data):
            exit_code, signal_number, killed, name, cpu, seconds, out_size, err_size = ENTRY.unpack_from(data, at)
            at += ENTRY.size
            # The program was killed, or the supervisor was killed while it wrote this entry.
            if killed or at + out_size + err_size > len(data):
                break
            out, err = data[at : at + out_size], data[at + out_size : at + out_size + err_size]
            at += out_size + err_size
            limit = name.rstrip(b"\0").decode("ascii", "replace")
            result = self._result(
                out,
                err,
                limit=limit if limit in LIMITS else "",
                exit_code=None if exit_code < 0 else exit_code,
                signal_number=None if signal_number < 0 else signal_number,
                outcome={"seconds": round(seconds, 6), "cpu": cpu},
            )
            results.append(result)
        if limit_of_batch:  # the program exceeded the limit by so much that the kernel killed the supervisor
            results.append(
                self._result(b"", b"", limit=limit_of_batch, exit_code=None, signal_number=signal.SIGKILL, outcome={})
            )
        return results

    def output_result(
        self,
        *,
        limit: str,
        exit_code: int | None,
        signal_number: int | None,
        outcome: Mapping[str, Any],
        ended: bool = False,
    ) -> Result:
        size = self.limits.output + 1
        out, err = os.pread(self._out, size, 0), os.pread(self._err, size, 0)
        return self._result(
            out,
            err,
            limit=limit,
            exit_code=exit_code,
            signal_number=signal_number,
            outcome=outcome,
            ended=ended,
        )

    def _result(
        self,
        out: bytes,
        err: bytes,
        *,
        limit: str,
        exit_code: int | None,
        signal_number: int | None,
        outcome: Mapping[str, Any],
        ended: bool = False,
    ) -> Result:
        size = self.limits.output
        out_cut, err_cut = len(out) > size, len(err) > size
        if (out_cut or err_cut) and limit in ("", "disk"):  # output is written to files, which count as disk space
            limit = "output"
        return Result(
            stdout=out[:size].decode("utf-8", "replace"),
            stderr=err[:size].decode("utf-8", "replace"),
            status="limit" if limit else "ok" if exit_code == 0 else "error",
            limit=limit or None,  # type: ignore[arg-type]  # always a LimitName: checked above, or set by the template
            exit_code=exit_code,
            signal=None if signal_number is None else _signal_name(signal_number),
            duration=outcome.get("seconds", 0.0),
            cpu=outcome.get("cpu", 0.0),
            cut=out_cut or err_cut,
            ended=ended,
        )

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


def encoded(text: str | bytes) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def pack_batch(code: str, inputs: Sequence[str | bytes], *, peer: str = "", stop: bool = False) -> bytes:
    """Return the content of the request file for a program that is run with several inputs."""
    parts = [encoded(code), encoded(peer), *map(encoded, inputs)]
    description = json.dumps({"lengths": [len(part) for part in parts], "stop": stop}).encode()
    return b"".join([BATCH_HEADER.pack(len(description)), description, *parts])


def pack_program(
    code: str, files: Mapping[str, str | bytes] | None, *, echo: bool, brief: bool, seed: int | None
) -> bytes:
    """Return the content of the request file for one program or session."""
    source = encoded(code)
    contents: list[bytes] = []
    names: list[tuple[str, int]] = []
    for name, content in (files or {}).items():
        if name.startswith("/") or ".." in name.split("/") or "\0" in name or not name.strip("/."):
            raise BadValue(f"`files` must have relative paths below the program's directory, got {name!r}")
        contents.append(encoded(content))
        names.append((name, len(contents[-1])))
    listing = json.dumps(names).encode() if names else b""
    header = HEADER.pack(len(listing), len(source), echo, brief, seed is not None, (seed or 0) % 2**64)
    return b"".join([header, listing, source, *contents])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

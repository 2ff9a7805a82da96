"""Limits for a sandboxed program and the result of running it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

from palestra.errors import BadValue

Status = Literal["ok", "error", "limit"]
LimitName = Literal["time", "cpu", "memory", "processes", "output", "disk"]
LIMITS: tuple[str, ...] = get_args(LimitName)

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits for one program. Memory and CPU time include all processes it starts."""

    wall: float = 10.0  # seconds per program, or per cell in a session
    cpu: float = 10.0  # seconds; does not apply to sessions, whose cells are limited only by `wall`
    memory: int = 1024 * _MIB  # bytes, in addition to the interpreter's own memory
    processes: int = 32  # concurrent processes and threads
    output: int = _MIB  # bytes of standard output; the same limit applies to standard error
    disk: int = 64 * _MIB  # bytes in the program's directory; also the maximum file size
    open_files: int = 256

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise BadValue(f"`{field.name}` must be a number above 0, got {value!r}")
        if self.memory < 16 * _MIB:
            raise BadValue(f"`memory` must be at least 16 MiB (16777216 bytes), got {self.memory} bytes")

    def to_wire(self, kind: str) -> dict[str, Any]:
        return {
            "kind": kind,  # "run", "session" or "batch"
            "wall": self.wall,
            "cpu": self.cpu,
            "memory": int(self.memory),
            "processes": int(self.processes),
            "file": int(max(self.disk, self.output + 1)),
            "disk": int(self.disk),
            "open_files": int(self.open_files),
            "output": int(self.output),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Outcome of running one program, or one cell in a session. A failure of the sandbox itself raises an exception."""

    stdout: str
    stderr: str
    status: Status  # "error": the program failed; "limit": it exceeded the limit named in `limit`
    limit: LimitName | None = None
    exit_code: int | None = None  # None if a signal killed the program
    signal: str | None = None  # name of the signal that killed the program, such as "SIGSEGV"
    duration: float = 0.0  # seconds
    cpu: float = 0.0  # seconds of CPU time; 0 for session cells
    cut: bool = False  # standard output or standard error was truncated at the limit
    ended: bool = False  # the session was terminated during this cell, and its variables are lost

    @property
    def ok(self) -> bool:
        return self.status == "ok"

"""What a sandbox is given and what it returns: limits in, results out."""

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
    """What one program may use. Memory and processor time count all processes it starts."""

    wall: float = 10.0  # seconds; of one cell in a session
    cpu: float = 10.0  # seconds; cells of a session are held to `wall` alone
    memory: int = 1024 * _MIB  # bytes beside the interpreter's own
    processes: int = 32  # and threads, at a time
    output: int = _MIB  # bytes of standard output that are kept, and as many of standard error
    disk: int = 64 * _MIB  # bytes in its directory; no file may be larger
    open_files: int = 256

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise BadValue(f"a limit is a number above 0, got {field.name}={value!r}")
        if self.memory < 16 * _MIB:
            raise BadValue(f"no program runs in less than 16 MiB, got memory={self.memory} bytes")

    def to_wire(self, *, once: bool) -> dict[str, Any]:
        return {
            "once": once,  # one program, not a session
            "wall": self.wall,
            "cpu": self.cpu,
            "memory": int(self.memory),
            "processes": int(self.processes),
            "file": int(max(self.disk, self.output + 1)),
            "disk": int(self.disk),
            "open_files": int(self.open_files),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one program, or of one cell. A sandbox that broke is not a result but an exception."""

    stdout: str
    stderr: str
    status: Status  # "error": the program failed by itself. "limit": it was stopped, see `limit`
    limit: LimitName | None = None
    exit_code: int | None = None  # None: a signal ended it
    signal: str | None = None  # its name, such as "SIGSEGV"
    duration: float = 0.0  # seconds
    cpu: float = 0.0  # seconds of processor time; 0 for cells
    cut: bool = False  # output or errors were longer than the limit and end early
    ended: bool = False  # a session's cell: the session, and with it all variables, is gone

    @property
    def ok(self) -> bool:
        return self.status == "ok"

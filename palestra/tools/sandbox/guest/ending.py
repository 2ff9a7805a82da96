"""Determine why a program was killed with SIGKILL: by a limit, by itself, or from outside the sandbox.

A kill from outside, for example by the kernel's out-of-memory killer, is not the program's failure. With namespaces, a
program is process 1 of its namespace and cannot kill itself, since the system call filter blocks the two ways to do so
(`seccomp.py`). A kill without an exceeded limit then certainly came from outside. Without namespaces or without the
filter, a program can kill itself, so a kill counts as one from outside only if the out-of-memory killer was active.
"""

from __future__ import annotations

import math
import os
import resource
import signal
from time import monotonic
from typing import Any

from palestra.tools.sandbox.guest.groups import SlotGroup

_COUNTER_AGE = 1.0  # seconds after which the counter is read again


class OutOfMemoryCounter:
    """Number of processes that the kernel's out-of-memory killer has killed on this machine."""

    def __init__(self) -> None:
        self._read_at = -math.inf
        self.refresh()

    def refresh(self) -> None:
        """Read the counter, unless it was read recently. Call this before a program starts."""
        now = monotonic()
        if now - self._read_at > _COUNTER_AGE:
            self._count = _out_of_memory_kills()
            self._read_at = now

    def may_have_killed(self) -> bool:
        """Return whether a process was killed since the last `refresh`; True if the kernel does not report it."""
        count = _out_of_memory_kills()
        return count is None or count != self._count


def _out_of_memory_kills() -> int | None:
    try:
        with open("/proc/vmstat") as file:  # noqa: PTH123  # nothing else here needs pathlib
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except OSError:
        return None
    return None


def describe_ending(
    status: int,
    usage: resource.struct_rusage,
    *,
    limit: str,
    limits: dict[str, Any],
    inherited: int,
    kills_are_external: bool,
    counter: OutOfMemoryCounter,
    group: SlotGroup | None,
) -> dict[str, Any]:
    """Return the outcome of a process: its exit code or signal, the exceeded limit, and whether it was killed.

    `limit` is the limit for which the process was killed on purpose, or "". `inherited` is the memory of the
    interpreter. `kills_are_external` states that the process could not kill itself.
    """
    signalled = os.WIFSIGNALED(status)
    cpu = usage.ru_utime + usage.ru_stime
    killed = False
    out_of_memory, own_limit = (False, False) if group is None else group.kills()
    if out_of_memory and status and not limit:  # the kernel may have killed a process that this one started
        limit, killed = ("memory", False) if own_limit else ("", True)
    elif not limit and signalled and os.WTERMSIG(status) == signal.SIGKILL:
        limited = limits["kind"] != "session"
        if limited and cpu >= math.ceil(limits["cpu"]):
            limit = "cpu"
        elif usage.ru_maxrss * 1024 > limits["memory"] + inherited:
            limit = "memory"
        elif limited and cpu >= limits["cpu"] / 2 and not counter.may_have_killed():
            limit = "cpu"  # RLIMIT_CPU is imprecise because it counts ticks
        else:
            killed = kills_are_external or counter.may_have_killed()
    return {
        "exit": None if signalled else os.WEXITSTATUS(status),
        "signal": os.WTERMSIG(status) if signalled else None,
        "limit": limit,
        "killed": killed,  # whether it was killed from outside the sandbox
        "cpu": round(cpu, 6),
    }

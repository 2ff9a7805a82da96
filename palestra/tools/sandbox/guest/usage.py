"""Measure the memory and CPU time of all processes that a program started."""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
_HERTZ = os.sysconf("SC_CLK_TCK")
_CHILD_SIGNAL = 1 << (signal.SIGCHLD - 1)


class ProcessUsage(NamedTuple):
    """Resource usage of one process, from /proc/PID/stat."""

    parent: int
    resident: int  # bytes
    own_cpu: float  # seconds
    children_cpu: float  # seconds of children that exited and were waited for
    started: int  # clock ticks since boot; with the process id, it identifies the process
    ignores_children: bool  # SIGCHLD is ignored, so the CPU time of exited children is lost


def all_usage() -> dict[int, ProcessUsage]:
    """Return the usage of each process that is visible in /proc, by process id."""
    usage = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:  # noqa: PTH123  # nothing else here needs pathlib
                    fields = file.read().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            usage[int(name)] = ProcessUsage(
                parent=int(fields[1]),
                resident=int(fields[21]) * _PAGE,
                own_cpu=(int(fields[11]) + int(fields[12])) / _HERTZ,
                children_cpu=(int(fields[13]) + int(fields[14])) / _HERTZ,
                started=int(fields[19]),
                ignores_children=bool(int(fields[30]) & _CHILD_SIGNAL),
            )
    return usage


class UsageMeter:
    """Memory and CPU time of one program with all processes it started, measured repeatedly."""

    def __init__(self, pid: int, inherited: int) -> None:
        """Measure the process tree with root `pid`; `inherited` bytes are the interpreter's and are not counted."""
        self._pid = pid
        self._inherited = inherited
        self._own_cpu: dict[tuple[int, int], float] = {}  # highest value per process, including exited ones
        self._ignores_since: float | None = None
        self.memory = 0  # bytes
        self.cpu = 0.0  # seconds

    def update(self, usage: dict[int, ProcessUsage], now: float, memory_limit: int) -> None:
        """Add one measurement. Memory is measured exactly only if a quick upper bound exceeds `memory_limit`."""
        children: dict[int, list[int]] = {}
        for pid, process in usage.items():
            children.setdefault(process.parent, []).append(pid)
        pids, pending = [], [self._pid]
        while pending:
            pid = pending.pop()
            if pid in usage:
                pids.append(pid)
            pending += children.get(pid, [])
        self._update_cpu([(pid, usage[pid]) for pid in pids], now)
        self.memory = sum(usage[pid].resident for pid in pids) - self._inherited
        if self.memory > memory_limit:  # pages shared by several processes were counted repeatedly
            self.memory = sum(_proportional_memory(pid, usage[pid].resident) for pid in pids)

    def _update_cpu(self, processes: list[tuple[int, ProcessUsage]], now: float) -> None:
        for pid, process in processes:
            key = pid, process.started
            self._own_cpu[key] = max(self._own_cpu.get(key, 0.0), process.own_cpu)
            if process.ignores_children and self._ignores_since is None:
                self._ignores_since = now
        running = sum(process.own_cpu + process.children_cpu for _, process in processes)
        # If exited children are not waited for, no process has their CPU time, so count the elapsed time instead.
        passed = 0.0 if self._ignores_since is None else now - self._ignores_since
        self.cpu = max(self.cpu, running, sum(self._own_cpu.values()), passed)


def _proportional_memory(pid: int, resident: int) -> int:
    """Return a process's memory in bytes; a page that n processes share counts as 1/n of a page."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:  # noqa: PTH123
            for line in file:
                if line.startswith("Pss:"):
                    return 1024 * int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError:
        return resident
    return 0  # the process has exited


def resident_memory() -> int:
    """Return the resident bytes of this process."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * _PAGE

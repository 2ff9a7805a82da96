"""Memory control groups (cgroups) for programs: a hard limit on all memory, including kernel memory.

A program enters the group of its slot before it is confined. The group's limit is higher than the program's, because it
also covers files, output and the interpreter's own pages; the limit itself is enforced by measuring (`usage.py`).
"""

from __future__ import annotations

import os
from typing import Any

MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")  # names of the limit in cgroup v2 and v1
_MARGIN = 96 << 20  # bytes for copies of the interpreter's pages, page tables and buffers


class SlotGroup:
    """The control group of one slot. Its descriptors are open in the template and in the supervisor of a batch."""

    def __init__(self, parent: int, index: int) -> None:
        """Create a group in the directory with descriptor `parent`, or raise OSError."""
        os.mkdir(str(index), dir_fd=parent)
        self._folder = os.open(str(index), os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY, dir_fd=parent)
        self._version_2 = MEMORY_LIMITS[0] in os.listdir(self._folder)  # noqa: PTH208
        self._processes = self._open("cgroup.procs", os.O_WRONLY)
        self._events = self._open("memory.events" if self._version_2 else "memory.oom_control", os.O_RDONLY)
        self._last_events = os.pread(self._events, 4096, 0)
        self._limit = 0

    @property
    def handles(self) -> tuple[int, ...]:
        """Descriptors that a supervisor needs to call `kills`."""
        return self._folder, self._events

    def close(self) -> None:
        for handle in (self._folder, self._processes, self._events):
            os.close(handle)

    def set_limit(self, limits: dict[str, Any]) -> None:
        """Set the limit for the next program in this slot."""
        limit = limits["memory"] + limits["disk"] + 2 * limits["file"] + _MARGIN
        if limit != self._limit:
            self._write(MEMORY_LIMITS[0 if self._version_2 else 1], str(limit))
            self._limit = limit

    def enter(self) -> int:
        """Move this process to the group."""
        os.write(self._processes, b"0")
        return 0

    def kills(self) -> tuple[bool, bool]:
        """Return whether the kernel has killed a process in the group for lack of memory since the last call.

        The second value states whether the limit of the group was the cause, not a lack of memory on the machine.
        """
        events = os.pread(self._events, 4096, 0)
        if events == self._last_events:
            return False, False
        before, after = _counts(self._last_events), _counts(events)
        self._last_events = events
        killed = after.get(b"oom_kill", 0) > before.get(b"oom_kill", 0)
        if self._version_2:
            return killed, after.get(b"oom", 0) > before.get(b"oom", 0)
        handle = self._open("memory.failcnt", os.O_RDWR)  # how often the limit was reached
        try:
            by_limit = int(os.pread(handle, 32, 0)) > 0
            os.write(handle, b"0")
        finally:
            os.close(handle)
        return killed, by_limit

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._folder)

    def _write(self, name: str, text: str) -> None:
        handle = self._open(name, os.O_WRONLY)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)


def _counts(events: bytes) -> dict[bytes, int]:
    return {name: int(value) for name, value in (line.split() for line in events.splitlines())}

"""What runs on this machine below the tests."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic, sleep


def below(pid: int) -> list[int]:
    """Every process that descends from this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        todo += (more := children.get(todo.pop(), []))
        found += more
    return found


def settled(most: int, seconds: float = 5.0) -> int:
    """How many processes there are below this one, as soon as they are no more than `most`, or when time is up."""
    end = monotonic() + seconds
    while (count := len(below(os.getpid()))) > most and monotonic() < end:
        sleep(0.02)
    return count


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))

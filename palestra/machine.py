"""CPU cores and memory that this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

WORKER = "PALESTRA_WORKER"  # environment variable that is set in worker processes
OWN_GROUPS = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use, also if its container has a quota."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    for group in _groups("cpu"):
        quota = _words(group / "cpu.max") or [*_words(group / "cpu.cfs_quota_us"), *_words(group / "cpu.cfs_period_us")]
        if len(quota) == 2 and quota[0].isdecimal():  # otherwise "max" or -1
            cores = min(cores, int(quota[0]) / int(quota[1]))
    return max(1, math.ceil(cores))


def own_cores() -> int:
    """Return the number of CPU cores on which this process may start further processes.

    It is 1 in a worker process, because there are usually as many workers as cores.
    """
    return 1 if os.environ.get(WORKER) else usable_cores()


def main_memory() -> int:
    """Return the size of the main memory in bytes, or the limit of this process's container."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group in _groups("memory"):
        limit = _words(group / "memory.max") or _words(group / "memory.limit_in_bytes")
        memory = min([memory, *(int(word) for word in limit if word.isdecimal())])
    return memory


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups (versions 1 and 2), from the innermost to the outermost."""
    try:
        lines = OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = CGROUPS / controller if controllers else CGROUPS
        # Without a namespace for control groups, the path is the host's, and only `root` exists in a container.
        group = root / path.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError:
        return []

"""/proc -> what processes use: memory and processor time of whole trees."""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")
_HERTZ = os.sysconf("SC_CLK_TCK")


def usage_of_all() -> dict[int, tuple[int, int, float]]:
    """Of every process: its parent, its resident bytes, its seconds of processor time with its dead children's."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:  # noqa: PTH123
                    fields = file.read().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            ticks = sum(int(field) for field in fields[11:15])
            found[int(name)] = int(fields[1]), int(fields[21]) * _PAGE, ticks / _HERTZ
    return found


def tree(usage: dict[int, tuple[int, int, float]], root: int, shared: int) -> tuple[int, float]:
    """Memory beyond what every fork has from the template, and processor time, of a process and all below it."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in usage.items():
        children.setdefault(parent, []).append(pid)
    memory, cpu, todo = 0, 0.0, [root]
    while todo:
        pid = todo.pop()
        _, resident, seconds = usage.get(pid, (0, 0, 0.0))
        memory += max(0, resident - shared)
        cpu += seconds
        todo += children.get(pid, [])
    return memory, cpu

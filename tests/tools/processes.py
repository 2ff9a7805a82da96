"""Find processes and file descriptors that tests leave behind."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from time import monotonic, sleep

from palestra.tools.sandbox import Sandbox

PATIENCE = 120.0  # seconds to wait for a condition on a loaded machine


def descendants(pid: int) -> list[int]:
    """Return the ids of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    pids, pending = [], [pid]
    while pending:
        pending += (more := children.get(pending.pop(), []))
        pids += more
    return pids


def sandbox_processes(sandbox: Sandbox) -> list[int]:
    """Return the process ids of this sandbox; the processes of other sandboxes may change at any time."""
    roots = [template._process.pid for pool in sandbox._templates.values() for template in pool]
    return roots + [pid for root in roots for pid in descendants(root)]


def wait_for_processes(sandbox: Sandbox, most: int) -> int:
    """Wait until the sandbox has at most `most` processes; return their number."""
    end = monotonic() + PATIENCE
    while (count := len(sandbox_processes(sandbox))) > most and monotonic() < end:
        sleep(0.02)
    return count


def wait_until_gone(pids: Iterable[int]) -> list[int]:
    """Wait until these processes have exited, and return those that are still running; zombies count as exited."""
    end = monotonic() + PATIENCE
    while (alive := [pid for pid in pids if _alive(pid)]) and monotonic() < end:
        sleep(0.02)
    return alive


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))

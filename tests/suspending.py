"""Suspend a process, so that it hangs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def suspend(pid: int) -> None:
    """Send SIGSTOP and wait until all threads have stopped; on a loaded machine, they could still answer a request."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 600
    while not all(_state(task) == "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "T"  # the thread has ended

"""Number of CPU cores for this process."""

from __future__ import annotations

import os

WORKER = "PALESTRA_WORKER"  # environment variable that is set in worker processes


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_cores() -> int:
    """Return the number of CPU cores on which this process may start further processes.

    It is 1 in a worker process, because there are usually as many workers as cores.
    """
    return 1 if os.environ.get(WORKER) else usable_cores()

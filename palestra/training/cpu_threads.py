"""Number of CPU threads for torch in training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from palestra.machine import usable_cores

SMALL_MODEL = 1_000_000  # number of parameters below which one thread is faster than several


def cpu_threads(given: int, parameters: int, device: str) -> int:
    """Return the number of threads for a model with this number of parameters; `given` is used unless it is 0."""
    if given or not device.startswith("cpu"):
        return given or torch.get_num_threads()
    if parameters < SMALL_MODEL:
        return 1
    return min(torch.get_num_threads(), usable_cores())  # torch does not know a container's quota


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads inside the `with` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""Set the current GPU of a thread, which Triton kernels and tensors on "cuda" without a number use.

Every new thread starts with the machine's first GPU, even if the thread that created it uses another one.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def use_device(device: torch.device) -> None:
    """Set this thread's current GPU."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def current_device(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context manager in which `device` is this thread's current GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def set_up_thread(device: torch.device, threads: int | None) -> None:
    """Set the current GPU and the number of torch threads for the calling thread only."""
    use_device(device)
    if threads is not None:
        default = torch.get_num_threads()
        torch.set_num_threads(threads)
        # New threads inherit the most recent setting, so restore the default from a temporary thread.
        other = threading.Thread(target=torch.set_num_threads, args=(default,))
        other.start()
        other.join()

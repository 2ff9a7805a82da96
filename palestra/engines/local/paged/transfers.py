"""Buffers for asynchronous copies between host and device."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

RING = 3  # a buffer is reused after two further steps; the step that used it has then finished


class HostRing:
    """Buffers of 32-bit integers in page-locked memory, used in rotation, at most one per step."""

    def __init__(self, *, pinned: bool) -> None:
        self._pinned = pinned
        self._buffers = [self._buffer(1024) for _ in range(RING)]
        self._views: dict[tuple[int, int], tuple[Tensor, NDArray[np.int32]]] = {}
        self._next = 0

    def take(self, size: int) -> tuple[Tensor, NDArray[np.int32]]:
        """Return the next buffer's first `size` elements, as a tensor and as an array with the same memory."""
        at = self._next
        self._next = (at + 1) % RING
        if (at, size) not in self._views:
            if len(self._buffers[at]) < size:
                self._buffers[at] = self._buffer(2 * size)
                self._views = {key: view for key, view in self._views.items() if key[0] != at}
            tensor = self._buffers[at][:size]
            self._views[at, size] = tensor, tensor.numpy()
        return self._views[at, size]

    def _buffer(self, size: int) -> Tensor:
        return torch.zeros(size, dtype=torch.int32, pin_memory=self._pinned)


class DeviceInput:
    """Input arrays on the device. A copy into it waits for the steps that read it, since all run in one stream.

    Views are cached, because every torch call may have to wait until the event loop releases the GIL.
    """

    def __init__(self, device: torch.device, size: int) -> None:
        self._ring = HostRing(pinned=device.type == "cuda")
        self._views: dict[int, Tensor] = {}
        self.tensor = torch.zeros(size, dtype=torch.int32, device=device)

    def stage(self, size: int) -> NDArray[np.int32]:
        """Return an array to be filled with `size` elements for `send`."""
        self._staged, array = self._ring.take(size)
        return array

    def send(self) -> Tensor:
        """Copy the staged array to the device; the tensor is reallocated if it has to grow."""
        size = len(self._staged)
        if len(self.tensor) < size:
            self.tensor = torch.zeros(2 * size, dtype=torch.int32, device=self.tensor.device)
            self._views.clear()
        if size not in self._views:
            self._views[size] = self.tensor[:size]
        return self._views[size].copy_(self._staged, non_blocking=True)

"""Interface for model runners, and the input for one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palestra.engines.local.prefix_cache import CacheEntry


class Chunk(NamedTuple):
    """Tokens from one sequence to run through the model; the tokens before `start` are cached."""

    entry: CacheEntry
    start: int
    stop: int
    needs_logits: bool  # whether the next token is sampled after this chunk

    @property
    def ids(self) -> list[int]:
        return self.entry.ids[self.start : self.stop]


class StepBatch(NamedTuple):
    """The chunks in one step as arrays, one element per sequence."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    offset: NDArray[np.int64]  # address of the sequence's block
    size: NDArray[np.int64]  # size of the sequence's block
    first_id: NDArray[np.int64]  # the id at `start`; valid for chunks of a single token
    needs_logits: NDArray[np.bool_]
    entries: Sequence[CacheEntry]  # entries with current ids for chunks of several tokens; empty if there are none

    @classmethod
    def from_chunks(cls, chunks: Sequence[Chunk]) -> StepBatch:
        numbers = [(c.start, c.stop, c.entry.offset, c.entry.size, c.entry.ids[c.start]) for c in chunks]
        start, stop, offset, size, first_id = np.array(numbers, np.int64).reshape(-1, 5).T
        needs_logits = np.array([chunk.needs_logits for chunk in chunks], np.bool_)
        return cls(start, stop, offset, size, first_id, needs_logits, [chunk.entry for chunk in chunks])

    def chunks(self) -> list[Chunk]:
        """Return the batch as a list of chunks. All entries must have current ids."""
        columns = self.entries, self.start.tolist(), self.stop.tolist(), self.needs_logits.tolist()
        return [Chunk(*row) for row in zip(*columns, strict=True)]


class Runner(Protocol):
    """Runs a model over a batch and stores keys and values in the KV cache."""

    name: str
    needs_entries: bool  # whether `StepBatch.entries` must be present with current ids for every sequence

    def forward(self, batch: StepBatch) -> Tensor:
        """Return the logits after the last token of each chunk that has `needs_logits` set, in order."""

    def reload_weights(self) -> bool:
        """Reload the weights after a change. Return False if this runner no longer supports the model's structure."""


def launch_bound(device: torch.device) -> bool:
    """Return whether launching a small kernel takes longer than running it, as on a GPU."""
    return device.type != "cpu"


def to_device(device: torch.device, *arrays: NDArray[Any]) -> list[Tensor]:
    """Copy arrays of 64-bit numbers to the device in one asynchronous transfer."""
    flat: Any = torch.from_numpy(
        np.concatenate([np.ascontiguousarray(array).view(np.int64).ravel() for array in arrays])
    )
    if device.type == "cuda":
        flat = flat.pin_memory()
    parts = flat.to(device, non_blocking=True).split([array.size for array in arrays])
    return [
        (part if array.dtype == np.int64 else part.view(torch.float64)).view(array.shape)
        for part, array in zip(parts, arrays, strict=True)
    ]

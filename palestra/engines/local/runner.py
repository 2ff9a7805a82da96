"""Model runners: the input of one step, the interface that computes it, and the choice of an implementation."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palestra.engines.local import loading
from palestra.engines.local.kv_cache import KVCache
from palestra.engines.local.prefix_cache import CacheEntry

logger = logging.getLogger(__name__)


class Chunk(NamedTuple):
    """Tokens of one sequence to run through the model; those before `start` are cached."""

    entry: CacheEntry
    start: int
    stop: int
    needs_logits: bool  # whether the next token is sampled after this chunk

    @property
    def ids(self) -> list[int]:
        return self.entry.ids[self.start : self.stop]


class StepBatch(NamedTuple):
    """The chunks of one step as arrays, one element per sequence."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    offset: NDArray[np.int64]  # address of the sequence's block
    size: NDArray[np.int64]  # of the block
    first_id: NDArray[np.int64]  # the id at `start`; valid for chunks of a single token
    needs_logits: NDArray[np.bool_]
    entries: Sequence[CacheEntry]  # with current ids for chunks longer than one token; empty if there are none

    @classmethod
    def from_chunks(cls, chunks: Sequence[Chunk]) -> StepBatch:
        numbers = [(c.start, c.stop, c.entry.offset, c.entry.size, c.entry.ids[c.start]) for c in chunks]
        start, stop, offset, size, first_id = np.array(numbers, np.int64).reshape(-1, 5).T
        needs_logits = np.array([chunk.needs_logits for chunk in chunks], np.bool_)
        return cls(start, stop, offset, size, first_id, needs_logits, [chunk.entry for chunk in chunks])

    def chunks(self) -> list[Chunk]:
        """Return the chunks one by one; requires current ids in all entries."""
        columns = self.entries, self.start.tolist(), self.stop.tolist(), self.needs_logits.tolist()
        return [Chunk(*row) for row in zip(*columns, strict=True)]


class Runner(Protocol):
    """Runs a model over a batch and stores keys and values in the KV cache."""

    name: str
    needs_entries: bool  # whether `StepBatch.entries` must be present with current ids for every sequence

    def forward(self, batch: StepBatch) -> Tensor:
        """Return the logits after the last token of each chunk with `needs_logits`, in order."""

    def reload_weights(self) -> bool:
        """Read changed weights. Return False if the model's structure changed and this runner no longer supports it."""


def launch_bound(device: torch.device) -> bool:
    """Return whether launching a computation costs more than a small one takes, as on a GPU."""
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


def select_runner(model: Any, kv_cache: KVCache, device: torch.device, only: str | None = None) -> Runner:
    """Return the fastest runner whose log-probabilities match the model's own."""
    from palestra.engines.local.decoder import NativeRunner
    from palestra.engines.local.transformers_runner import RecomputeRunner, TransformersRunner

    reasons = []
    runner_classes: dict[str, Any] = {"native": NativeRunner, "transformers": TransformersRunner}
    for name, runner_class in runner_classes.items():
        if only not in (None, name):
            continue
        reason = runner_class.unsupported_reason(model)
        if reason is None:
            kv_cache.release()
            runner: Runner = runner_class(model, kv_cache, device)
            reason = _mismatch(model, runner, kv_cache, device)
        if reason is None:
            return runner
        reasons.append(f"{name}: {reason}")
    kv_cache.release()
    if only != "recompute":
        logger.warning("%s runs without a KV cache, which is slow (%s)", type(model).__name__, reasons)
    return RecomputeRunner(model, kv_cache, device)


@torch.no_grad()
def _mismatch(model: Any, runner: Runner, kv_cache: KVCache, device: torch.device) -> str | None:
    """Compare the runner with the model on two short sequences read in chunks; return the difference or None."""
    vocabulary = loading.vocabulary_size(model)
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randint(vocabulary, (length,), generator=generator).tolist() for length in (11, 7)]
    # A fresh prompt, a continued one, then token by token.
    cuts = [((0, 6), (6, 9), (9, 10), (10, 11)), ((0, 3), (3, 5), (5, 6), (6, 7))]
    entries = []
    for ids in sequences:
        offset = kv_cache.allocate(64)
        if offset is None:
            return "the cache is too small for the comparison"
        entries.append(CacheEntry(ids, None, offset, 64))
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.5  # lower precision rounds every operation
    was_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        reference = [model(input_ids=torch.tensor([s], device=device), use_cache=False).logits[0] for s in sequences]
        for spans in zip(*cuts, strict=True):
            chunks = [Chunk(entry, start, stop, True) for entry, (start, stop) in zip(entries, spans, strict=True)]
            actual = runner.forward(StepBatch.from_chunks(chunks)).float().log_softmax(-1)
            expected = torch.stack([logits[chunk.stop - 1] for logits, chunk in zip(reference, chunks, strict=True)])
            error = (actual - expected.float().log_softmax(-1)).abs().max().item()
            if not error <= tolerance and expected.isfinite().all():
                return f"log-probabilities differ by {error:.2g} from the model's own"
    except Exception as err:  # noqa: BLE001  unsupported models raise arbitrary exceptions
        return f"{type(err).__name__}: {err}"
    finally:
        for module in was_training:
            module.training = True
        for entry in entries:
            kv_cache.allocator.free(entry.offset, entry.size)
    return None

"""What a step feeds a model, and the ways to run one: a lean decoder, transformers with our cache, or without any."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palestra.engines.local import loading
from palestra.engines.local.kv_cache import Arena
from palestra.engines.local.prefix_cache import Slot

logger = logging.getLogger(__name__)


class Feed(NamedTuple):
    """Tokens of one conversation for the model to read; those before `start` are cached."""

    slot: Slot
    start: int
    stop: int
    last: bool  # whether the token after them is wanted

    @property
    def ids(self) -> list[int]:
        return self.slot.ids[self.start : self.stop]


class Batch(NamedTuple):
    """The same of many conversations, in arrays with a number for each."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    offset: NDArray[np.int64]  # of the slots
    size: NDArray[np.int64]
    first: NDArray[np.int64]  # the id at `start`; it holds for those that are fed a single token
    last: NDArray[np.bool_]
    slots: Sequence[Slot]  # up to date where a row is fed more than one token; empty where none is

    @classmethod
    def of(cls, feeds: Sequence[Feed]) -> Batch:
        numbers = [(f.start, f.stop, f.slot.offset, f.slot.size, f.slot.ids[f.start]) for f in feeds]
        start, stop, offset, size, first = np.array(numbers, np.int64).reshape(-1, 5).T
        last = np.array([feed.last for feed in feeds], np.bool_)
        return cls(start, stop, offset, size, first, last, [feed.slot for feed in feeds])

    def feeds(self) -> list[Feed]:
        """One by one; the ids of all slots have to be up to date."""
        columns = self.slots, self.start.tolist(), self.stop.tolist(), self.last.tolist()
        return [Feed(*row) for row in zip(*columns, strict=True)]


class Runner(Protocol):
    """Runs a model over a batch and keeps the keys and values in the arena."""

    name: str
    reads_slots: bool  # whether it wants the ids of all slots up to date

    def forward(self, batch: Batch) -> Tensor:
        """The logits after the last token of each row that is `last`, in order."""

    def refresh(self) -> bool:
        """The weights changed. False: so did the model's structure, and this runner cannot run it any more."""


def dear_calls(device: torch.device) -> bool:
    """Whether starting a computation costs more than small ones take, so that few large ones are better than many."""
    return device.type != "cpu"


def send(device: torch.device, *arrays: NDArray[Any]) -> list[Tensor]:
    """Arrays of 64-bit numbers on the device, in one transfer that nobody waits for."""
    line: Any = torch.from_numpy(
        np.concatenate([np.ascontiguousarray(array).view(np.int64).ravel() for array in arrays])
    )
    if device.type == "cuda":
        line = line.pin_memory()
    parts = line.to(device, non_blocking=True).split([array.size for array in arrays])
    return [
        (part if array.dtype == np.int64 else part.view(torch.float64)).view(array.shape)
        for part, array in zip(parts, arrays, strict=True)
    ]


def choose(model: Any, arena: Arena, device: torch.device, only: str | None = None) -> Runner:
    """The fastest runner that provably computes what the model does."""
    from palestra.engines.local.decoder import LeanRunner
    from palestra.engines.local.transformers_runner import CachedRunner, RecomputingRunner

    reasons = []
    kinds: dict[str, Any] = {"lean": LeanRunner, "cached": CachedRunner}
    for name, kind in kinds.items():
        if only not in (None, name):
            continue
        reason = kind.refusal(model)
        if reason is None:
            arena.clear()
            runner: Runner = kind(model, arena, device)
            reason = _difference(model, runner, arena, device)
        if reason is None:
            return runner
        reasons.append(f"{name}: {reason}")
    arena.clear()
    if only != "recomputing":
        logger.warning("%s runs without a cache, every token anew, which is slow (%s)", type(model).__name__, reasons)
    return RecomputingRunner(model, arena, device)


@torch.no_grad()
def _difference(model: Any, runner: Runner, arena: Arena, device: torch.device) -> str | None:
    """How the runner differs from the model on two short rows read in pieces; None: it does not."""
    vocabulary = loading.vocabulary_size(model)
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(vocabulary, (length,), generator=generator).tolist() for length in (11, 7)]
    cuts = [((0, 6), (6, 9), (9, 10), (10, 11)), ((0, 3), (3, 5), (5, 6), (6, 7))]  # fresh, continued, token by token
    slots = []
    for ids in rows:
        offset = arena.take(64)
        if offset is None:
            return "the cache has no room for a test"
        slots.append(Slot(ids, None, offset, 64))
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.5  # the coarser types round each operation
    was_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        whole = [model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0] for ids in rows]
        for pieces in zip(*cuts, strict=True):
            feeds = [Feed(slot, start, stop, True) for slot, (start, stop) in zip(slots, pieces, strict=True)]
            got = runner.forward(Batch.of(feeds)).float().log_softmax(-1)
            want = torch.stack([logits[feed.stop - 1] for logits, feed in zip(whole, feeds, strict=True)])
            error = (got - want.float().log_softmax(-1)).abs().max().item()
            if not error <= tolerance and want.isfinite().all():
                return f"log-probabilities differ by {error:.2g} from the model's own"
    except Exception as err:  # noqa: BLE001  models that cannot be run this way fail in ways of their own
        return f"{type(err).__name__}: {err}"
    finally:
        for module in was_training:
            module.training = True
        for slot in slots:
            arena.regions.give(slot.offset, slot.size)
    return None

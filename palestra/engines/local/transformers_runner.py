"""Run any decoder-only model through transformers' own forward pass; keys and values stay in the arena, or nowhere."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from palestra.engines.local import loading
from palestra.engines.local.kv_cache import Arena
from palestra.engines.local.runner import Batch, Feed

TOKENS = 4096  # of one padded batch
UNEVEN = 1.3  # how much longer than its shortest row a batch may be


class ArenaCache(Cache):
    """Transformers' view of the arena for one forward pass."""

    def __init__(self, arena: Arena, write: Tensor, read: Tensor) -> None:
        super().__init__(layers=[])
        self._arena = arena
        self._write = write  # (rows * new tokens): where each goes
        self._read = read  # (rows, all tokens): where each is

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store what is new, (rows, heads, new tokens, width), and give everything."""
        new = key_states.transpose(1, 2), value_states.transpose(1, 2)
        stored = self._arena.layer(layer_idx, *new)
        seen = []
        for states, line in zip(new, stored, strict=True):
            line.index_copy_(0, self._write, states.flatten(0, 1))
            everything = line.index_select(0, self._read.flatten())
            seen.append(everything.view(*self._read.shape, *line.shape[1:]).transpose(1, 2))
        return seen[0], seen[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        return int(self._read.shape[1])

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:  # noqa: ARG002
        return int(self._read.shape[1]), 0


class CachedRunner:
    """Padded batches of similar length; each reads its keys and values out of the arena, which costs a copy."""

    name = "cached"
    reads_slots = True

    def __init__(self, model: Any, arena: Arena, device: torch.device) -> None:
        self._model = model
        self._arena = arena
        self._device = device
        self._windows = loading.layer_windows(model) or {}
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters

    @staticmethod
    def refusal(model: Any) -> str | None:
        """Why the model cannot be run this way; None: it may be."""
        if loading.layer_windows(model) is None or getattr(model, "_is_stateful", False):
            return "it keeps more than keys and values"
        if model.config.get_text_config(decoder=True)._attn_implementation not in ("eager", "sdpa"):
            return "its attention takes no explicit masks; load it with attn_implementation='sdpa'"
        if "position_ids" not in inspect.signature(model.forward).parameters:
            return "it takes no positions"
        return None

    def refresh(self) -> bool:
        return True  # nothing of the model is held but the model

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        feeds = batch.feeds()
        found: dict[int, Tensor] = {}
        with evaluating(self._model):
            for part in batches([feed.stop - feed.start for feed in feeds]):
                logits = self._batch([feeds[at] for at in part])
                found.update((at, row) for at, row in zip(part, logits, strict=True) if feeds[at].last)
        return torch.stack([found[at] for at in sorted(found)]) if found else logits[:0]

    def _batch(self, feeds: list[Feed]) -> Tensor:
        longest = max(feed.stop - feed.start for feed in feeds)
        total = max(feed.stop for feed in feeds)
        ids, positions, write = [], [], []
        for feed in feeds:
            slot, count = feed.slot, feed.stop - feed.start
            pad = longest - count
            ids.append(feed.ids + [0] * pad)
            positions.append([*range(feed.start, feed.stop), *[feed.stop - 1] * pad])
            write.append([*range(slot.offset + feed.start, slot.offset + feed.stop), *[self._arena.nowhere] * pad])
        line = torch.tensor((ids, positions, write)).to(self._device, non_blocking=True)
        offsets = torch.tensor([feed.slot.offset for feed in feeds]).to(self._device, non_blocking=True)
        seen = torch.arange(total, device=self._device)
        cache = ArenaCache(self._arena, line[2].flatten(), (offsets[:, None] + seen).clamp_(max=self._arena.nowhere))
        masks = {kind: self._mask(seen, line[1], window) for kind, window in self._windows.items()}
        lasts = [feed.stop - feed.start - 1 for feed in feeds]
        kept = sorted(set(lasts))
        options = {"logits_to_keep": torch.tensor(kept, device=self._device)} if self._keeps else {}
        logits: Tensor = self._model(
            input_ids=line[0],
            attention_mask=masks if len(masks) > 1 else next(iter(masks.values())),
            position_ids=line[1],
            past_key_values=cache,
            use_cache=True,
            **options,
        ).logits
        places = [kept.index(last) for last in lasts] if self._keeps else lasts
        return logits[torch.arange(len(feeds), device=self._device), torch.tensor(places, device=self._device)]

    def _mask(self, seen: Tensor, positions: Tensor, window: int | None) -> Tensor:
        """(rows, 1, new tokens, all tokens), to be added to the scores: eager and sdpa attention both take that."""
        hidden = seen > positions[..., None]
        if window is not None:
            hidden |= seen <= positions[..., None] - window
        dtype = self._model.dtype
        mask = torch.zeros(hidden.shape, dtype=dtype, device=self._device)
        return mask.masked_fill_(hidden, torch.finfo(dtype).min)[:, None]


class RecomputingRunner:
    """The whole text for every token: right for every causal model, whatever it keeps, and slow."""

    name = "recomputing"
    reads_slots = True

    def __init__(self, model: Any, arena: Arena, device: torch.device) -> None:
        self._model = model
        self._device = device
        del arena

    def refresh(self) -> bool:
        return True

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        feeds = [feed for feed in batch.feeds() if feed.last]
        found: dict[int, Tensor] = {}
        with evaluating(self._model):
            for part in batches([feed.stop for feed in feeds]):
                longest = max(feeds[at].stop for at in part)
                # Padding comes after the text, where nothing of a causal model looks at it.
                ids = [feeds[at].slot.ids[: feeds[at].stop] + [0] * (longest - feeds[at].stop) for at in part]
                logits = self._model(input_ids=torch.tensor(ids, device=self._device), use_cache=False).logits
                found.update((at, logits[row, feeds[at].stop - 1]) for row, at in enumerate(part))
        return torch.stack([found[at] for at in range(len(feeds))]) if found else torch.empty(0)


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Group rows by similar length, shortest first; a batch of several has TOKENS at most, its padding counted."""
    batch: list[int] = []
    for at in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (
            lengths[at] > UNEVEN * lengths[batch[0]] + 8 * (lengths[batch[0]] > 1)
            or lengths[at] * (len(batch) + 1) > TOKENS
        ):
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Dropout off, for a model that a learner left in training mode; afterwards it is as it was."""
    if not model.training:
        yield
        return
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True

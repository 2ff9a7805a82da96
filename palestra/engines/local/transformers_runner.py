"""Run any decoder-only model through its transformers forward pass, with the engine's KV cache or without a cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from palestra.engines.local import loading
from palestra.engines.local.kv_cache import KVCache
from palestra.engines.local.runner import Chunk, StepBatch

MAX_PADDED_TOKENS = 4096  # maximum number of tokens per batch, including padding
MAX_LENGTH_RATIO = 1.3  # maximum ratio of the longest to the shortest sequence in a batch


class CacheAdapter(Cache):
    """Adapter that lets a transformers model use the KV cache in one forward pass."""

    def __init__(self, kv_cache: KVCache, write: Tensor, read: Tensor) -> None:
        super().__init__(layers=[])
        self._kv_cache = kv_cache
        self._write = write  # (rows * new tokens): address of each new token
        self._read = read  # (rows, all tokens): address of each token

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store the keys and values of new tokens (rows, heads, new tokens, dim) and return those of all tokens."""
        new = key_states.transpose(1, 2), value_states.transpose(1, 2)
        stored = self._kv_cache.layer(layer_idx, *new)
        gathered = []
        for states, storage in zip(new, stored, strict=True):
            storage.index_copy_(0, self._write, states.flatten(0, 1))
            rows = storage.index_select(0, self._read.flatten())
            gathered.append(rows.view(*self._read.shape, *storage.shape[1:]).transpose(1, 2))
        return gathered[0], gathered[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        return int(self._read.shape[1])

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:  # noqa: ARG002
        return int(self._read.shape[1]), 0


class TransformersRunner:
    """Runs padded batches of similarly long sequences; each batch copies its keys and values from the KV cache."""

    name = "transformers"
    needs_entries = True

    def __init__(self, model: Any, kv_cache: KVCache, device: torch.device) -> None:
        self._model = model
        self._kv_cache = kv_cache
        self._device = device
        self._windows = loading.layer_windows(model) or {}
        self._selects_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    @staticmethod
    def unsupported_reason(model: Any) -> str | None:
        """Return the reason why this runner cannot run the model, or None if it might work."""
        if loading.layer_windows(model) is None or getattr(model, "_is_stateful", False):
            return "it has state other than keys and values"
        if model.config.get_text_config(decoder=True)._attn_implementation not in ("eager", "sdpa"):
            return "its attention takes no explicit masks; load it with attn_implementation='sdpa'"
        if "position_ids" not in inspect.signature(model.forward).parameters:
            return "its forward pass takes no position_ids"
        return None

    def reload_weights(self) -> bool:
        return True  # the runner holds no copies of weights

    @torch.no_grad()
    def forward(self, batch: StepBatch) -> Tensor:
        chunks = batch.chunks()
        logits_by_row: dict[int, Tensor] = {}
        with eval_mode(self._model):
            for part in group_by_length([chunk.stop - chunk.start for chunk in chunks]):
                logits = self._forward_padded([chunks[row] for row in part])
                logits_by_row.update(
                    (row, values) for row, values in zip(part, logits, strict=True) if chunks[row].needs_logits
                )
        return torch.stack([logits_by_row[row] for row in sorted(logits_by_row)]) if logits_by_row else logits[:0]

    def _forward_padded(self, chunks: list[Chunk]) -> Tensor:
        longest = max(chunk.stop - chunk.start for chunk in chunks)
        total = max(chunk.stop for chunk in chunks)
        scratch = self._kv_cache.scratch
        ids, positions, write = [], [], []
        for chunk in chunks:
            entry, count = chunk.entry, chunk.stop - chunk.start
            pad = longest - count
            ids.append(chunk.ids + [0] * pad)
            positions.append([*range(chunk.start, chunk.stop), *[chunk.stop - 1] * pad])
            write.append([*range(entry.offset + chunk.start, entry.offset + chunk.stop), *[scratch] * pad])
        inputs = torch.tensor((ids, positions, write)).to(self._device, non_blocking=True)
        offsets = torch.tensor([chunk.entry.offset for chunk in chunks]).to(self._device, non_blocking=True)
        key_positions = torch.arange(total, device=self._device)
        cache = CacheAdapter(
            self._kv_cache, inputs[2].flatten(), (offsets[:, None] + key_positions).clamp_(max=scratch)
        )
        masks = {kind: self._mask(key_positions, inputs[1], window) for kind, window in self._windows.items()}
        last = [chunk.stop - chunk.start - 1 for chunk in chunks]
        selected = sorted(set(last))
        options = {"logits_to_keep": torch.tensor(selected, device=self._device)} if self._selects_logits else {}
        logits: Tensor = self._model(
            input_ids=inputs[0],
            attention_mask=masks if len(masks) > 1 else next(iter(masks.values())),
            position_ids=inputs[1],
            past_key_values=cache,
            use_cache=True,
            **options,
        ).logits
        columns = [selected.index(index) for index in last] if self._selects_logits else last
        return logits[torch.arange(len(chunks), device=self._device), torch.tensor(columns, device=self._device)]

    def _mask(self, key_positions: Tensor, positions: Tensor, window: int | None) -> Tensor:
        """Return an additive mask (rows, 1, new tokens, all tokens), which eager and sdpa attention both accept."""
        hidden = key_positions > positions[..., None]
        if window is not None:
            hidden |= key_positions <= positions[..., None] - window
        dtype = self._model.dtype
        mask = torch.zeros(hidden.shape, dtype=dtype, device=self._device)
        return mask.masked_fill_(hidden, torch.finfo(dtype).min)[:, None]


class RecomputeRunner:
    """Recomputes the whole sequence for every token. Slow, but correct for every causal model."""

    name = "recompute"
    needs_entries = True

    def __init__(self, model: Any, kv_cache: KVCache, device: torch.device) -> None:
        self._model = model
        self._device = device
        del kv_cache

    def reload_weights(self) -> bool:
        return True

    @torch.no_grad()
    def forward(self, batch: StepBatch) -> Tensor:
        chunks = [chunk for chunk in batch.chunks() if chunk.needs_logits]
        logits_by_row: dict[int, Tensor] = {}
        with eval_mode(self._model):
            for part in group_by_length([chunk.stop for chunk in chunks]):
                longest = max(chunks[row].stop for row in part)
                # Padding comes after the text, so a causal model does not attend to it.
                ids = [chunks[row].entry.ids[: chunks[row].stop] + [0] * (longest - chunks[row].stop) for row in part]
                logits = self._model(input_ids=torch.tensor(ids, device=self._device), use_cache=False).logits
                logits_by_row.update((row, logits[index, chunks[row].stop - 1]) for index, row in enumerate(part))
        return torch.stack([logits_by_row[row] for row in range(len(chunks))]) if logits_by_row else torch.empty(0)


def group_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups of rows with similar lengths, shortest first, with at most MAX_PADDED_TOKENS including padding."""
    group: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and (
            lengths[row] > MAX_LENGTH_RATIO * lengths[group[0]] + 8 * (lengths[group[0]] > 1)
            or lengths[row] * (len(group) + 1) > MAX_PADDED_TOKENS
        ):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


@contextmanager
def eval_mode(model: Any) -> Iterator[None]:
    """Put the model in evaluation mode inside the `with` block and restore its mode afterwards."""
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

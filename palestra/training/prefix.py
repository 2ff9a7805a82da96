"""KV caches that compute a shared prefix only once, and attention masks for packed rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from palestra.training.batch import MicroBatch


class PrefixRecorder(Cache):
    """Records the keys and values from a pass over a prefix; gradients flow back through them."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.keys_and_values: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.keys_and_values[layer_idx] = (key_states, value_states)
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:  # noqa: ARG002
        return query_length, 0


class PrefixCache(Cache):
    """Prepends a recorded prefix to every row. It is read-only, so that layers can be recomputed."""

    def __init__(self, recorder: PrefixRecorder, length: int) -> None:
        super().__init__(layers=[])
        self._keys_and_values = recorder.keys_and_values
        self._length = length

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        keys, values = self._keys_and_values[layer_idx]
        rows = len(key_states)
        return (
            torch.cat((keys.expand(rows, -1, -1, -1), key_states), 2),
            torch.cat((values.expand(rows, -1, -1, -1), value_states), 2),
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        return self._length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:  # noqa: ARG002
        return self._length + query_length, 0


def attention_mask(batch: MicroBatch, window: int | None) -> Tensor:
    """Return a mask [B, 1, T, S + T]: each token attends to the prefix and to its own sample up to its own position."""
    prefix = torch.arange(batch.shared, device=batch.ids.device).expand(len(batch.ids), -1)
    key_positions = torch.cat((prefix, batch.positions), 1)[:, None, :]
    query_positions = batch.positions[:, :, None]
    same_sample = batch.segments[:, :, None] == batch.segments[:, None, :]
    mask = torch.cat((same_sample.new_ones(*same_sample.shape[:2], batch.shared), same_sample), 2)
    mask &= key_positions <= query_positions
    if window is not None:
        mask &= key_positions > query_positions - window
    return mask[:, None]

"""What all rows begin with, read once: its keys and values, handed to every row. And masks for rows in one line."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from palestra.training.batch import Micro


class Recorder(Cache):
    """Takes down the keys and values of a pass over a prefix; gradients flow back through them."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        self.kept[layer_idx] = (key_states, value_states)
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:  # noqa: ARG002
        return query_length, 0


class Prefix(Cache):
    """Puts a recorded prefix before every row. Nothing is stored, so a layer may be computed as often as one likes."""

    def __init__(self, recorder: Recorder, length: int) -> None:
        super().__init__(layers=[])
        self._kept = recorder.kept
        self._length = length

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        keys, values = self._kept[layer_idx]
        rows = len(key_states)
        return (
            torch.cat((keys.expand(rows, -1, -1, -1), key_states), 2),
            torch.cat((values.expand(rows, -1, -1, -1), value_states), 2),
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        return self._length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:  # noqa: ARG002
        return self._length + query_length, 0


def visible(micro: Micro, window: int | None) -> Tensor:
    """[B, 1, T, S + T] bool: a token sees the prefix, and of its own row what is not after it."""
    before = torch.arange(micro.shared, device=micro.ids.device).expand(len(micro.ids), -1)
    where = torch.cat((before, micro.positions), 1)[:, None, :]
    now = micro.positions[:, :, None]
    own = micro.segments[:, :, None] == micro.segments[:, None, :]
    shown = torch.cat((own.new_ones(*own.shape[:2], micro.shared), own), 2) & (where <= now)
    if window is not None:
        shown &= where > now - window
    return shown[:, None]

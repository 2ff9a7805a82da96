"""Attention over the KV cache for sequences of different lengths.

The tokens in a step form one flat sequence: first the sequences that decode one token each, ordered by block, then the
sequences that prefill several tokens. A plan is computed once per step and used in every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from palestra.engines.local.runner import to_device
from palestra.engines.local.segments import Segment, segments

Ints = NDArray[np.int64]
Windows = Sequence[int | None]


class Heads(NamedTuple):
    kv: int  # number of key/value heads
    group: int  # query heads per key/value head
    dim: int
    scale: float


class DecodePart(NamedTuple):
    """Sequences that decode one token each, covered by one attention call."""

    queries: tuple[int, int, int, int]  # blocks, kv heads, query heads per kv head, dim
    shape: tuple[int, int, int, int]  # shape of the keys: blocks, kv heads, tokens, dim
    strides: tuple[int, int, int, int]
    start: int  # index of the first element in a layer's flattened keys
    first: int  # start of the range in the flat token sequence
    end: int
    spread: Tensor | None  # sequence index of each block; None if every block is used
    gather: Tensor | None  # block index of each sequence; None if every block is used
    masks: dict[int | None, Tensor | None]  # attention window -> mask


class PrefillPart(NamedTuple):
    """One sequence that prefills several tokens."""

    offset: int
    first: int
    end: int
    length: int  # length of the sequence, including cached tokens
    masks: dict[int | None, Tensor | None]  # attention window -> mask; None: causal attention without an explicit mask


AttentionPart = DecodePart | PrefillPart


class AttentionPlanner:
    """Plans attention for one model on one device. An attention call costs as much as reading `call_cost` tokens."""

    def __init__(
        self, heads: Heads, windows: Windows, device: torch.device, dtype: torch.dtype, *, call_cost: float
    ) -> None:
        self._heads = heads
        self._windows = windows
        self._device = device
        self._call_cost = call_cost
        self._zero = torch.zeros((), dtype=dtype, device=device)
        self._minus_infinity = torch.full((), float("-inf"), dtype=dtype, device=device)

    def order(self, start: Ints, stop: Ints, offset: Ints, size: Ints) -> tuple[Ints, int]:
        """Return the order in which sequences are packed into the flat batch, and how many decode a single token."""
        count = stop - start
        if count.max() == 1:
            return np.lexsort((offset, size)), len(count)
        decode, prefill = np.flatnonzero(count == 1), np.flatnonzero(count > 1)
        decode = decode[np.lexsort((offset[decode], size[decode]))]
        return np.concatenate((decode, prefill)), len(decode)

    def plan(self, start: Ints, stop: Ints, offset: Ints, size: Ints, decoding: int) -> list[AttentionPart]:
        """Plan the attention for sequences sorted by `order`; the first `decoding` of them decode a single token."""
        parts: list[AttentionPart] = []
        if decoding:
            parts += self._decode_parts(stop[:decoding], offset[:decoding], size[:decoding])
        first = decoding
        for row in range(decoding, len(start)):
            parts.append(self._prefill_part(int(start[row]), int(stop[row]), int(offset[row]), first))
            first += int(stop[row] - start[row])
        return parts

    def _decode_parts(self, stop: Ints, offset: Ints, size: Ints) -> list[AttentionPart]:
        cuts = segments(offset, size, stop, self._call_cost)
        blocks = sum(cut.blocks for cut in cuts)
        dense = blocks == len(stop)
        lengths = stop
        sequence_of_block = block_of_sequence = stop[:0]
        if not dense:
            lengths = np.ones(blocks, np.int64)  # an unused block still needs one visible token
            sequence_of_block = np.zeros(blocks, np.int64)
            block_of_sequence = np.concatenate([cut.rows for cut in cuts])
            starts = np.repeat(np.cumsum([0, *(cut.blocks for cut in cuts[:-1])]), [len(cut.rows) for cut in cuts])
            lengths[starts + block_of_sequence] = stop
            indices = np.concatenate([np.arange(len(cut.rows)) for cut in cuts])
            sequence_of_block[starts + block_of_sequence] = indices
        ends, spreads, gathers = to_device(self._device, lengths, sequence_of_block, block_of_sequence)
        positions = torch.arange(max(cut.length for cut in cuts), device=self._device)
        masks: dict[int | None, Tensor] = {}
        for window in self._windows:
            visible = positions < ends[:, None]
            if window is not None:
                visible &= positions >= ends[:, None] - window
            masks[window] = self._mask(visible)[:, None, None]
        parts: list[AttentionPart] = []
        row = block = 0
        for cut in cuts:
            end, after = row + len(cut.rows), block + cut.blocks
            full = cut.blocks == len(cut.rows)
            parts.append(
                self._decode_part(
                    cut, row, None if full else spreads[block:after], None if full else gathers[row:end],
                    {window: mask[block:after, ..., : cut.length] for window, mask in masks.items()},
                )
            )  # fmt: skip
            row, block = end, after
        return parts

    def _decode_part(
        self, cut: Segment, first: int, spread: Tensor | None, gather: Tensor | None, masks: dict[int | None, Tensor]
    ) -> DecodePart:
        kv, group, dim, _ = self._heads
        single = cut.blocks == 1  # with a single block, no mask is needed
        return DecodePart(
            queries=(cut.blocks, kv, group, dim),
            shape=(cut.blocks, kv, cut.length, dim),
            strides=(cut.size * kv * dim, dim, kv * dim, 1),
            start=cut.offset * kv * dim,
            first=first,
            end=first + len(cut.rows),
            spread=spread,
            gather=gather,
            masks={
                window: None if single and (window is None or cut.length <= window) else mask
                for window, mask in masks.items()
            },
        )

    def _prefill_part(self, start: int, stop: int, offset: int, first: int) -> PrefillPart:
        masks: dict[int | None, Tensor | None] = {}
        for window in self._windows:
            if start == 0 and (window is None or stop <= window):
                masks[window] = None
                continue
            positions = torch.arange(stop, device=self._device)
            query_positions = positions[start:, None]
            visible = positions <= query_positions
            if window is not None:
                visible &= positions > query_positions - window
            masks[window] = self._mask(visible).repeat(self._heads.group, 1)
        return PrefillPart(offset, first, first + stop - start, stop, masks)

    def _mask(self, visible: Tensor) -> Tensor:
        """Return `visible` as an additive mask, because attention would convert a boolean mask in every layer."""
        return torch.where(visible, self._zero, self._minus_infinity)


def attend(
    query: Tensor, keys: Tensor, values: Tensor, window: int | None, parts: Sequence[AttentionPart], heads: Heads
) -> Tensor:
    """Compute one layer's attention for queries of shape (token, head, dim); return shape (token, head * dim)."""
    outputs = []
    for part in parts:
        if isinstance(part, DecodePart):
            queries, shape, strides, start, first, end, spread, gather, masks = part
            q = query[first:end] if spread is None else query[first:end].index_select(0, spread)
            # Treat query heads that share keys as additional queries for one head, so that keys need not be repeated.
            x = F.scaled_dot_product_attention(
                q.view(queries),
                keys.as_strided(shape, strides, start),
                values.as_strided(shape, strides, start),
                attn_mask=masks[window],
                scale=heads.scale,
            ).reshape(shape[0], -1)
            outputs.append(x if gather is None else x.index_select(0, gather))
        else:
            outputs.append(_prefill(query, keys, values, window, part, heads))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _prefill(
    query: Tensor, keys: Tensor, values: Tensor, window: int | None, part: PrefillPart, heads: Heads
) -> Tensor:
    kv, group, dim, scale = heads
    offset, first, end, length, masks = part
    count, mask = end - first, masks[window]
    q = query[first:end].view(count, kv, group, dim).permute(1, 2, 0, 3)
    k = keys[offset : offset + length].transpose(0, 1)
    v = values[offset : offset + length].transpose(0, 1)
    if mask is None:
        shape = (kv, group, length, dim)
        k, v = k[:, None].expand(shape), v[:, None].expand(shape)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    else:
        q = q.reshape(1, kv, group * count, dim)
        x = F.scaled_dot_product_attention(q, k[None], v[None], attn_mask=mask, scale=scale)
    return x.view(kv, group, count, dim).permute(2, 0, 1, 3).reshape(count, -1)

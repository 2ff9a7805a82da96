"""Plan the attention of a step: which rows of the cache each call looks at, and what is hidden from whom.

The tokens of a step are one line: first the rows that read one token each, in the order of their blocks, then those
that read several. A plan is made once a step and followed in every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from palestra.engines.local.runner import send
from palestra.engines.local.segments import Segment, segments

Ints = NDArray[np.int64]
Windows = Sequence[int | None]

TILE = 16  # masks whose rows are no multiple of this are padded anew in every layer on a GPU
CELLS = 1 << 26  # of the mask of one call that reads many rows


class Heads(NamedTuple):
    kv: int
    group: int  # query heads for each head of keys and values
    width: int
    scale: float


class Single(NamedTuple):
    """A segment of rows that read one token each."""

    queries: tuple[int, int, int, int]  # blocks, heads of keys, heads of queries for each, width
    shape: tuple[int, int, int, int]  # its keys: blocks, heads, tokens, width
    strides: tuple[int, int, int, int]
    start: int  # its first number among a layer's keys
    first: int  # its rows' place in the line of tokens
    end: int
    spread: Tensor | None  # for each block the row that is in it, where some are nobody's
    gather: Tensor | None  # for each row its block
    masks: dict[int | None, Tensor | None]  # by window


class Long(NamedTuple):
    """A row that reads several tokens, by itself."""

    offset: int
    first: int
    end: int
    length: int  # of the whole row, with what is cached
    masks: dict[int | None, Tensor | None]  # by window; None: plainly causal


class Padded(NamedTuple):
    """Rows that read several tokens each, in one call: their tokens and their keys are padded to the longest."""

    rows: int
    wide: int  # tokens read
    line: Tensor  # (rows * wide): which token of the line
    keys: Tensor  # (rows * length): which token of the cache
    back: Tensor  # for each token of the line, which of rows * wide
    masks: dict[int | None, Tensor]  # by window


Part = Single | Long | Padded


class Planner:
    """Makes plans for one model on one device. `call_cost`: of an attention call, in tokens of one layer."""

    def __init__(
        self, heads: Heads, windows: Windows, device: torch.device, dtype: torch.dtype, *, call_cost: float, pad: bool
    ) -> None:
        self._heads = heads
        self._windows = windows
        self._device = device
        self._cost = call_cost
        self._pad = pad
        self._nothing = torch.zeros((), dtype=dtype, device=device)
        self._minus_infinity = torch.full((), float("-inf"), dtype=dtype, device=device)

    def order(self, start: Ints, stop: Ints, offset: Ints, size: Ints) -> tuple[Ints, int]:
        """How the rows line up, and how many of them read one token."""
        count = stop - start
        if count.max() == 1:
            return np.lexsort((offset, size)), len(count)
        single, long = np.flatnonzero(count == 1), np.flatnonzero(count > 1)
        single = single[np.lexsort((offset[single], size[single]))]
        if self._pad:
            long = long[np.lexsort((stop[long], count[long]))]  # neighbours of like length, for little padding
        return np.concatenate((single, long)), len(single)

    def plan(self, start: Ints, stop: Ints, offset: Ints, size: Ints, singles: int) -> list[Part]:
        """For rows in order, of which the first `singles` read one token."""
        parts: list[Part] = []
        if singles:
            parts += self._singles(stop[:singles], offset[:singles], size[:singles])
        first = singles
        for group in self._groups(start[singles:], stop[singles:]):
            rows = slice(singles + group.start, singles + group.stop)
            here = start[rows], stop[rows], offset[rows]
            end = first + int((here[1] - here[0]).sum())
            if len(here[0]) == 1:
                parts.append(self._long(int(here[0][0]), int(here[1][0]), int(here[2][0]), first))
            else:
                parts.append(self._padded(*here, first))
            first = end
        return parts

    def _groups(self, start: Ints, stop: Ints) -> list[slice]:
        if not self._pad:
            return [slice(at, at + 1) for at in range(len(start))]
        found: list[slice] = []
        first = longest = read = 0
        for at, (count, length) in enumerate(zip((stop - start).tolist(), stop.tolist(), strict=True)):
            rows, longest, read = at + 1 - first, max(longest, length), read + count
            # Rows come in order of count, so this one's is the width.
            if rows > 1 and (rows * count * longest > CELLS or rows * count > 2 * read + 1024):
                found.append(slice(first, at))
                first, longest, read = at, length, count
        if len(start):
            found.append(slice(first, len(start)))
        return found

    def _singles(self, stop: Ints, offset: Ints, size: Ints) -> list[Part]:
        cuts = segments(offset, size, stop, self._cost)
        if self._pad:
            cuts = [cut._replace(length=-(-cut.length // TILE) * TILE) for cut in cuts]
        blocks = sum(cut.blocks for cut in cuts)
        whole = blocks == len(stop)
        lengths = stop
        inverse = within = stop[:0]
        if not whole:
            lengths = np.ones(blocks, np.int64)  # a block that is nobody's still needs a token
            inverse = np.zeros(blocks, np.int64)
            within = np.concatenate([cut.rows for cut in cuts])
            starts = np.repeat(np.cumsum([0, *(cut.blocks for cut in cuts[:-1])]), [len(cut.rows) for cut in cuts])
            lengths[starts + within] = stop
            inverse[starts + within] = np.concatenate([np.arange(len(cut.rows)) for cut in cuts])
        until, inverses, gathers = send(self._device, lengths, inverse, within)
        seen = torch.arange(max(cut.length for cut in cuts), device=self._device)
        masks: dict[int | None, Tensor] = {}
        for window in self._windows:
            shown = seen < until[:, None]
            if window is not None:
                shown &= seen >= until[:, None] - window
            masks[window] = self._mask(shown)[:, None, None]
        parts: list[Part] = []
        row = block = 0
        for cut in cuts:
            end, after = row + len(cut.rows), block + cut.blocks
            full = cut.blocks == len(cut.rows)
            parts.append(
                self._single(
                    cut, row, None if full else inverses[block:after], None if full else gathers[row:end],
                    {window: mask[block:after, ..., : cut.length] for window, mask in masks.items()},
                )
            )  # fmt: skip
            row, block = end, after
        return parts

    def _single(
        self, cut: Segment, first: int, spread: Tensor | None, gather: Tensor | None, masks: dict[int | None, Tensor]
    ) -> Single:
        kv, group, width, _ = self._heads
        alone = cut.blocks == 1 and not self._pad  # then it looks at everything it has
        return Single(
            queries=(cut.blocks, kv, group, width),
            shape=(cut.blocks, kv, cut.length, width),
            strides=(cut.size * kv * width, width, kv * width, 1),
            start=cut.offset * kv * width,
            first=first,
            end=first + len(cut.rows),
            spread=spread,
            gather=gather,
            masks={
                window: None if alone and (window is None or cut.length <= window) else mask
                for window, mask in masks.items()
            },
        )

    def _long(self, start: int, stop: int, offset: int, first: int) -> Long:
        masks: dict[int | None, Tensor | None] = {}
        for window in self._windows:
            if start == 0 and (window is None or stop <= window):
                masks[window] = None
                continue
            seen = torch.arange(stop, device=self._device)
            at = seen[start:, None]
            shown = seen <= at
            if window is not None:
                shown &= seen > at - window
            masks[window] = self._mask(shown).repeat(self._heads.group, 1)
        return Long(offset, first, first + stop - start, stop, masks)

    def _padded(self, start: Ints, stop: Ints, offset: Ints, first: int) -> Padded:
        count = stop - start
        rows, wide, length = len(count), int(count.max()), -(-int(stop.max()) // TILE) * TILE
        before = count.cumsum() - count  # tokens of the rows above
        back = np.arange(int(count.sum())) + np.repeat(np.arange(rows) * wide - before, count)
        columns, back_there = send(self._device, np.stack((start, stop, offset, before + first)), back)
        begins, ends, blocks, heads = columns[:, :, None]
        # Beyond a row's end stand its last token and its last key again: finite, and nobody reads what comes of it.
        at = torch.minimum(begins + torch.arange(wide, device=self._device), ends - 1)
        seen = torch.arange(length, device=self._device)
        masks = {}
        for window in self._windows:
            shown = seen <= at[..., None]
            if window is not None:
                shown &= seen > at[..., None] - window
            mask = self._mask(shown)
            group = self._heads.group
            masks[window] = (mask if group == 1 else mask.repeat_interleave(group, 1))[:, None]
        return Padded(
            rows=rows,
            wide=wide,
            line=(at - begins + heads).flatten(),
            keys=(torch.minimum(seen, ends - 1) + blocks).flatten(),
            back=back_there,
            masks=masks,
        )

    def _mask(self, shown: Tensor) -> Tensor:
        """What is added to the scores: attention would turn a mask of truth values into this anew in every layer."""
        return torch.where(shown, self._nothing, self._minus_infinity)


def attend(
    query: Tensor, keys: Tensor, values: Tensor, window: int | None, parts: Sequence[Part], heads: Heads
) -> Tensor:
    """One layer's attention: queries (token, head, width) of the whole line in, (token, head * width) out."""
    kv, group, width, scale = heads
    found = []
    for part in parts:
        if isinstance(part, Single):
            queries, shape, strides, start, first, end, spread, gather, masks = part
            q = query[first:end] if spread is None else query[first:end].index_select(0, spread)
            # The heads that share keys are the "queries" of one head: nothing has to be repeated for them.
            x = F.scaled_dot_product_attention(
                q.view(queries),
                keys.as_strided(shape, strides, start),
                values.as_strided(shape, strides, start),
                attn_mask=masks[window],
                scale=scale,
            ).reshape(shape[0], -1)
            found.append(x if gather is None else x.index_select(0, gather))
        elif isinstance(part, Padded):
            rows, wide, line, where, back, padded_masks = part
            q = query.index_select(0, line).view(rows, wide, kv, group, width)
            x = F.scaled_dot_product_attention(
                q.transpose(1, 2).reshape(rows, kv, wide * group, width),
                keys.index_select(0, where).view(rows, -1, kv, width).transpose(1, 2),
                values.index_select(0, where).view(rows, -1, kv, width).transpose(1, 2),
                attn_mask=padded_masks[window],
                scale=scale,
            ).view(rows, kv, wide, group * width)
            found.append(x.transpose(1, 2).reshape(rows * wide, -1).index_select(0, back))
        else:
            found.append(_alone(query, keys, values, window, part, heads))
    return found[0] if len(found) == 1 else torch.cat(found)


def _alone(query: Tensor, keys: Tensor, values: Tensor, window: int | None, row: Long, heads: Heads) -> Tensor:
    kv, group, width, scale = heads
    offset, first, end, length, masks = row
    count, mask = end - first, masks[window]
    q = query[first:end].view(count, kv, group, width).permute(1, 2, 0, 3)
    k = keys[offset : offset + length].transpose(0, 1)
    v = values[offset : offset + length].transpose(0, 1)
    if mask is None:
        shape = (kv, group, length, width)
        k, v = k[:, None].expand(shape), v[:, None].expand(shape)
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    else:
        q = q.reshape(1, kv, group * count, width)
        x = F.scaled_dot_product_attention(q, k[None], v[None], attn_mask=mask, scale=scale)
    return x.view(kv, group, count, width).permute(2, 0, 1, 3).reshape(count, -1)

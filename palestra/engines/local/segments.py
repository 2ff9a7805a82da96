"""Group sequences of different lengths into KV cache ranges that are each covered by one attention call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

FEW_ROWS = 16  # if a call costs as much as reading this many rows, splitting is rarely faster


class Segment(NamedTuple):
    """Adjacent blocks of one size, viewed as a table with one block per row."""

    offset: int  # address of the first block
    size: int  # size of each block in tokens
    blocks: int
    length: int  # number of tokens read per block: the length of the longest sequence
    rows: Ints  # block index of each sequence, in order; other blocks in the range are read but ignored


def segments(offset: Ints, size: Ints, tokens: Ints, call_cost: float) -> list[Segment]:
    """Return segments that cover all sequences, which must be sorted by block size and offset.

    One call costs as much as reading `call_cost` tokens; sequences share a call if that is cheaper than two calls.
    """
    if not len(offset):
        return []
    block = offset // size
    longest = int(tokens.max())
    if call_cost >= FEW_ROWS * longest:  # only a large gap between blocks justifies another call
        cuts = [0, *(np.flatnonzero(np.diff(size) | (np.diff(block) > 1 + call_cost / longest)) + 1).tolist()]
    else:
        cuts = _cuts(block.tolist(), size.tolist(), tokens.tolist(), call_cost)
    result = []
    for first, end in zip(cuts, [*cuts[1:], len(offset)], strict=True):
        rows = block[first:end] - block[first]
        length = int(tokens[first:end].max())
        result.append(Segment(int(offset[first]), int(size[first]), int(rows[-1]) + 1, length, rows))
    return result


def _cuts(blocks: list[int], sizes: list[int], tokens: list[int], call_cost: float) -> list[int]:
    """Return the indices of the sequences that start a new segment."""
    cuts: list[int] = []
    current_size = first = last = length = 0
    for index, (block, size, count) in enumerate(zip(blocks, sizes, tokens, strict=True)):
        if size == current_size:
            longest = count if count > length else length
            if (block + 1 - first) * longest <= (last + 1 - first) * length + count + call_cost:
                last, length = block, longest
                continue
        cuts.append(index)
        current_size, first, last, length = size, block, block, count
    return cuts

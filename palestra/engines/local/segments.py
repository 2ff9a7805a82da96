"""Cut rows of ragged length into stretches of the cache that one attention call covers each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

MANY = 16  # rows; calls that cost as much as looking at more of them are dear


class Segment(NamedTuple):
    """Blocks of one size that lie side by side, seen as a table with a block a row."""

    offset: int  # where the first block begins
    size: int  # of each block
    blocks: int
    length: int  # how many tokens of each block are looked at: the longest row's
    rows: Ints  # the block each row sits in, in order; other blocks in between are looked at for nothing


def segments(offset: Ints, size: Ints, tokens: Ints, call_cost: float) -> list[Segment]:
    """Cover rows, each a block and how many of its tokens count, in order of size and offset.

    A call costs as much as looking at `call_cost` tokens; rows share one while that is cheaper than a call for each.
    """
    if not len(offset):
        return []
    block = offset // size
    most = int(tokens.max())
    if call_cost >= MANY * most:  # a call for a few rows never pays, only one to leap over a wide gap
        cuts = [0, *(np.flatnonzero(np.diff(size) | (np.diff(block) > 1 + call_cost / most)) + 1).tolist()]
    else:
        cuts = _cuts(block.tolist(), size.tolist(), tokens.tolist(), call_cost)
    found = []
    for first, end in zip(cuts, [*cuts[1:], len(offset)], strict=True):
        inside = block[first:end] - block[first]
        length = int(tokens[first:end].max())
        found.append(Segment(int(offset[first]), int(size[first]), int(inside[-1]) + 1, length, inside))
    return found


def _cuts(blocks: list[int], sizes: list[int], tokens: list[int], call_cost: float) -> list[int]:
    """At which rows a new segment begins."""
    cuts: list[int] = []
    of = first = last = length = 0
    for at, (block, size, count) in enumerate(zip(blocks, sizes, tokens, strict=True)):
        if size == of:
            longest = count if count > length else length
            if (block + 1 - first) * longest <= (last + 1 - first) * length + count + call_cost:
                last, length = block, longest
                continue
        cuts.append(at)
        of, first, last, length = size, block, block, count
    return cuts

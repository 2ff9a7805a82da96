"""Cut rows of ragged length into stretches of the cache that one attention call covers each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from palestra.engines.slots import Slot


class Segment(NamedTuple):
    """Blocks of one size that lie side by side, seen as a table with a block a row."""

    offset: int  # where the first block begins
    size: int  # of each block
    blocks: int
    length: int  # how many tokens of each block are looked at: the longest row's
    rows: list[int]  # the block each row sits in, in order; other blocks in between are looked at for nothing


def segments(rows: Iterable[tuple[Slot, int]], call_cost: float) -> list[Segment]:
    """Cover rows, each a slot and how many of its tokens count, in order of size and offset.

    A call costs as much as looking at `call_cost` tokens; rows share one while that is cheaper than a call for each.
    """
    found: list[Segment] = []
    size = first = last = length = 0
    inside: list[int] = []
    for slot, tokens in rows:
        block = slot.offset // slot.size
        if slot.size == size:
            together = (block + 1 - first) * max(length, tokens)
            if together <= (last + 1 - first) * length + tokens + call_cost:
                inside.append(block - first)
                last = block
                length = max(length, tokens)
                continue
        if inside:
            found.append(Segment(first * size, size, last + 1 - first, length, inside))
        size, first, last, length, inside = slot.size, block, block, tokens, [0]
    if inside:
        found.append(Segment(first * size, size, last + 1 - first, length, inside))
    return found

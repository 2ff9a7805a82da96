"""Blocks are aligned, never overlap, and merge again when given back."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from palestra.engines.local.block_allocator import SMALLEST, Regions, block_for

SIZES = st.sampled_from([SMALLEST * 2**power for power in range(5)])


@given(st.integers(1, 100_000))
def test_a_block_holds_its_tokens_and_not_twice_as_many(tokens: int) -> None:
    size = block_for(tokens)
    assert size >= tokens
    assert size & (size - 1) == 0
    assert size == SMALLEST or size < 2 * tokens


@given(st.integers(1, 40), st.lists(st.tuples(SIZES, st.booleans(), st.integers(0, 99)), max_size=60))
def test_what_is_taken_is_nobody_elses(length: int, moves: list[tuple[int, bool, int]]) -> None:
    regions = Regions()
    regions.extend(length * SMALLEST // 2 * 2)
    regions.extend(length * SMALLEST)
    held: list[tuple[int, int]] = []
    for size, giving, which in moves:
        if giving and held:
            regions.give(*held.pop(which % len(held)))
        elif held and which % 3 == 0:
            start, old = held[which % len(held)]
            if regions.widen(start, old):
                held[which % len(held)] = start, 2 * old
        else:
            start_or_none = regions.take(size)
            if start_or_none is not None:
                held.append((start_or_none, size))
        assert all(start % size == 0 and start + size <= regions.length for start, size in held)
        held.sort()
        assert all(a + size <= b for (a, size), (b, _) in pairwise(held))
        assert regions.free == regions.length - sum(size for _, size in held)
    for start, size in held:
        regions.give(start, size)
    largest = block_for(regions.length + 1) // 2  # all has merged: the largest block there can be is there
    assert regions.take(largest) == 0


def test_the_first_free_block_is_taken() -> None:
    regions = Regions()
    regions.extend(8 * SMALLEST)
    starts = [regions.take(SMALLEST) for _ in range(8)]
    assert starts == [at * SMALLEST for at in range(8)]
    assert regions.take(SMALLEST) is None
    regions.give(5 * SMALLEST, SMALLEST)
    regions.give(2 * SMALLEST, SMALLEST)
    assert regions.take(SMALLEST) == 2 * SMALLEST
    assert regions.take(2 * SMALLEST) is None


def test_a_line_grows_at_its_end() -> None:
    regions = Regions()
    regions.extend(SMALLEST)
    assert regions.take(SMALLEST) == 0
    assert not regions.widen(0, SMALLEST)
    regions.extend(4 * SMALLEST)
    assert regions.widen(0, SMALLEST)
    assert regions.take(2 * SMALLEST) == 2 * SMALLEST

"""Test that the allocator's blocks are aligned, do not overlap, and merge when freed."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from palestra.engines.local.block_allocator import MIN_BLOCK, BlockAllocator, block_size_for

SIZES = st.sampled_from([MIN_BLOCK * 2**power for power in range(5)])


@given(st.integers(1, 100_000))
def test_block_size_is_the_next_power_of_two(tokens: int) -> None:
    size = block_size_for(tokens)
    assert size >= tokens
    assert size & (size - 1) == 0
    assert size == MIN_BLOCK or size < 2 * tokens


@given(st.integers(1, 40), st.lists(st.tuples(SIZES, st.booleans(), st.integers(0, 99)), max_size=60))
def test_allocated_blocks_do_not_overlap(length: int, moves: list[tuple[int, bool, int]]) -> None:
    allocator = BlockAllocator()
    allocator.extend(length * MIN_BLOCK // 2 * 2)
    allocator.extend(length * MIN_BLOCK)
    held: list[tuple[int, int]] = []
    for size, release, which in moves:
        if release and held:
            allocator.free(*held.pop(which % len(held)))
        elif held and which % 3 == 0:
            start, old = held[which % len(held)]
            if allocator.grow_in_place(start, old):
                held[which % len(held)] = start, 2 * old
        else:
            start_or_none = allocator.allocate(size)
            if start_or_none is not None:
                held.append((start_or_none, size))
        assert all(start % size == 0 and start + size <= allocator.length for start, size in held)
        held.sort()
        assert all(a + size <= b for (a, size), (b, _) in pairwise(held))
        assert allocator.free_tokens == allocator.length - sum(size for _, size in held)
    for start, size in held:
        allocator.free(start, size)
    largest = block_size_for(allocator.length + 1) // 2  # all blocks have merged, so the largest possible one is free
    assert allocator.allocate(largest) == 0


def test_first_free_block_is_allocated() -> None:
    allocator = BlockAllocator()
    allocator.extend(8 * MIN_BLOCK)
    starts = [allocator.allocate(MIN_BLOCK) for _ in range(8)]
    assert starts == [at * MIN_BLOCK for at in range(8)]
    assert allocator.allocate(MIN_BLOCK) is None
    allocator.free(5 * MIN_BLOCK, MIN_BLOCK)
    allocator.free(2 * MIN_BLOCK, MIN_BLOCK)
    assert allocator.allocate(MIN_BLOCK) == 2 * MIN_BLOCK
    assert allocator.allocate(2 * MIN_BLOCK) is None


def test_block_grows_in_place() -> None:
    allocator = BlockAllocator()
    allocator.extend(MIN_BLOCK)
    assert allocator.allocate(MIN_BLOCK) == 0
    assert not allocator.grow_in_place(0, MIN_BLOCK)
    allocator.extend(4 * MIN_BLOCK)
    assert allocator.grow_in_place(0, MIN_BLOCK)
    assert allocator.allocate(2 * MIN_BLOCK) == 2 * MIN_BLOCK

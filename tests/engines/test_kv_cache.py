"""Copies that wait and are made together give what they would have given one by one."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from palestra.engines.local.block_allocator import SMALLEST
from palestra.engines.local.kv_cache import Arena

BLOCKS = 6
BLOCK = st.integers(0, BLOCKS - 1)


@given(st.lists(st.tuples(BLOCK, BLOCK, st.integers(0, SMALLEST), st.booleans()).filter(lambda c: c[0] != c[1])))
def test_copies_made_together_are_those_made_one_by_one(copies: list[tuple[int, int, int, bool]]) -> None:
    arena = Arena(most=BLOCKS * SMALLEST)
    like = torch.zeros(1, 2)
    arena.layer(0, like, like)
    assert {arena.take(SMALLEST) for _ in range(BLOCKS)} == {at * SMALLEST for at in range(BLOCKS)}
    numbers = torch.arange(arena.keys[0].numel(), dtype=torch.float32).view_as(arena.keys[0])
    arena.keys[0].copy_(numbers)
    arena.values[0].copy_(-numbers)
    expected = numbers.clone()
    for source, target, tokens, settle in copies:
        source, target = source * SMALLEST, target * SMALLEST
        expected[target : target + tokens] = expected[source : source + tokens].clone()
        arena.copy(source, target, tokens)
        if settle:
            arena.settle()
    arena.settle()
    assert torch.equal(arena.keys[0], expected)
    assert torch.equal(arena.values[0], -expected)

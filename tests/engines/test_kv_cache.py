"""Test that deferred copies in the KV cache have the same result as immediate copies."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from palestra.engines.local.block_allocator import MIN_BLOCK
from palestra.engines.local.kv_cache import KVCache

BLOCKS = 6
BLOCK = st.integers(0, BLOCKS - 1)


@given(st.lists(st.tuples(BLOCK, BLOCK, st.integers(0, MIN_BLOCK), st.booleans()).filter(lambda c: c[0] != c[1])))
def test_batched_copies_equal_sequential_copies(copies: list[tuple[int, int, int, bool]]) -> None:
    cache = KVCache(max_tokens=BLOCKS * MIN_BLOCK)
    like = torch.zeros(1, 2)
    cache.layer(0, like, like)
    assert {cache.allocate(MIN_BLOCK) for _ in range(BLOCKS)} == {at * MIN_BLOCK for at in range(BLOCKS)}
    numbers = torch.arange(cache.keys[0].numel(), dtype=torch.float32).view_as(cache.keys[0])
    cache.keys[0].copy_(numbers)
    cache.values[0].copy_(-numbers)
    expected = numbers.clone()
    for source, target, tokens, flush in copies:
        source, target = source * MIN_BLOCK, target * MIN_BLOCK
        expected[target : target + tokens] = expected[source : source + tokens].clone()
        cache.copy(source, target, tokens)
        if flush:
            cache.flush_copies()
    cache.flush_copies()
    assert torch.equal(cache.keys[0], expected)
    assert torch.equal(cache.values[0], -expected)

"""Test the prefix cache: lookup by conversation and by prefix hash, and the attention segments."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from palestra.engines.local.prefix_cache import HASH_BLOCK, CacheEntry, PrefixCache, common_prefix, prefix_hashes
from palestra.engines.local.segments import segments

IDS = st.lists(st.integers(0, 2), max_size=40)


@given(IDS, IDS, st.integers(0, 50))
def test_common_prefix_is_the_longest(a: list[int], b: list[int], most: int) -> None:
    n = common_prefix(a, b, most)
    assert a[:n] == b[:n]
    assert n <= most
    assert n == min(most, len(a), len(b)) or a[n] != b[n]


@given(st.lists(st.integers(0, 9), max_size=200), st.integers(0, 200), st.integers(0, 9))
def test_equal_prefixes_have_equal_hashes(ids: list[int], at: int, new: int) -> None:
    other = [*ids[:at], new, *ids[at + 1 :]]
    same = common_prefix(ids, other, len(ids)) // HASH_BLOCK
    a, b = prefix_hashes(ids), prefix_hashes(other)
    assert len(a) == len(ids) // HASH_BLOCK
    assert a[:same] == b[:same]
    assert all(x != y for x, y in zip(a[same:], b[same:], strict=False))


def test_entry_with_the_longest_prefix_is_returned() -> None:
    cache = PrefixCache()
    short, long = list(range(HASH_BLOCK)), list(range(3 * HASH_BLOCK))
    first, second = CacheEntry(short, "a", 0, 64), CacheEntry(long, "b", 64, 64)
    cache.add(first, prefix_hashes(short))
    cache.add(second, prefix_hashes(long))
    assert cache.longest_match(prefix_hashes([*long, 5, 6])) is second
    assert cache.longest_match(prefix_hashes([*short, 7, 7])) is second  # the newer of two entries with this prefix
    assert cache.longest_match(prefix_hashes([9] * 64)) is None
    cache.remove(second)
    assert cache.longest_match(prefix_hashes(long)) is None
    assert cache.get("b") is None


def test_least_recently_used_entry_is_evicted_first() -> None:
    cache = PrefixCache()
    entries = [CacheEntry([1], key, 64 * key, 64) for key in range(3)]
    for entry in entries:
        cache.add(entry, [])
        assert cache.deactivate(entry)
    cache.activate(entries[0])
    assert cache.least_recently_used() is entries[1]
    assert cache.least_recently_used(exclude=entries[1]) is entries[2]
    cache.deactivate(entries[0])
    cache.remove(entries[1])
    assert cache.idle() == [entries[2], entries[0]]


def test_entries_without_a_current_conversation_are_dropped() -> None:
    cache = PrefixCache()
    nameless, old, new = CacheEntry([1], None, 0, 64), CacheEntry([1], "k", 64, 64), CacheEntry([1], "k", 128, 64)
    for entry in (nameless, old, new):
        cache.add(entry, [])
    assert not cache.deactivate(nameless)
    assert not cache.deactivate(old)  # the conversation has a newer entry
    assert cache.deactivate(new)
    assert cache.forget("k") is new
    assert cache.forget("k") is None
    busy = CacheEntry([1], "k", 192, 64)
    cache.add(busy, [])
    assert cache.forget("k") is None
    assert not cache.deactivate(busy)
    assert len(cache) == 0


@given(
    st.lists(st.tuples(st.sampled_from([64, 128, 256]), st.integers(0, 30), st.integers(1, 64)), max_size=40),
    st.floats(0, 5_000) | st.just(1e7),
)
def test_segments_cover_every_row_once(drawn: list[tuple[int, int, int]], call_cost: float) -> None:
    blocks = {(size, at): tokens for size, at, tokens in drawn}  # overlapping blocks do not affect the result
    rows = [(at * size, size, tokens) for (size, at), tokens in sorted(blocks.items())]
    offset, sizes, counts = np.array(rows, np.int64).reshape(-1, 3).T
    parts = segments(offset, sizes, counts, call_cost)
    seen = [
        (segment.size, segment.offset // segment.size + block, segment.length)
        for segment in parts
        for block in segment.rows
    ]
    assert [(size, at) for size, at, _ in seen] == sorted(blocks)
    assert all(length >= blocks[size, at] for size, at, length in seen)
    for segment in parts:
        assert segment.offset % segment.size == 0
        assert segment.rows[0] == 0
        assert segment.rows[-1] == segment.blocks - 1
    cost = sum(segment.blocks * segment.length + call_cost for segment in parts)
    assert cost <= sum(blocks.values()) + call_cost * len(blocks) + 1e-6  # never more expensive than one call per row

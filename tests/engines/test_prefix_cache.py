"""Prompts find what is cached for them, by conversation or by how they begin; segments cover what they should."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from palestra.engines.local.prefix_cache import BLOCK, Slot, Slots, common, marks_of
from palestra.engines.local.segments import segments

IDS = st.lists(st.integers(0, 2), max_size=40)


@given(IDS, IDS, st.integers(0, 50))
def test_common_is_the_longest_equal_beginning(a: list[int], b: list[int], most: int) -> None:
    n = common(a, b, most)
    assert a[:n] == b[:n]
    assert n <= most
    assert n == min(most, len(a), len(b)) or a[n] != b[n]


@given(st.lists(st.integers(0, 9), max_size=200), st.integers(0, 200), st.integers(0, 9))
def test_equal_beginnings_have_equal_marks(ids: list[int], at: int, new: int) -> None:
    other = [*ids[:at], new, *ids[at + 1 :]]
    same = common(ids, other, len(ids)) // BLOCK
    a, b = marks_of(ids), marks_of(other)
    assert len(a) == len(ids) // BLOCK
    assert a[:same] == b[:same]
    assert all(x != y for x, y in zip(a[same:], b[same:], strict=False))


def test_a_slot_is_found_by_the_longest_beginning() -> None:
    slots = Slots()
    short, long = list(range(BLOCK)), list(range(3 * BLOCK))
    first, second = Slot(short, "a", 0, 64), Slot(long, "b", 64, 64)
    slots.add(first, marks_of(short))
    slots.add(second, marks_of(long))
    assert slots.like(marks_of([*long, 5, 6])) is second
    assert slots.like(marks_of([*short, 7, 7])) is second  # the newer one of two that begin so
    assert slots.like(marks_of([9] * 64)) is None
    slots.remove(second)
    assert slots.like(marks_of(long)) is None
    assert slots.of("b") is None


def test_the_longest_idle_goes_first() -> None:
    slots = Slots()
    made = [Slot([1], key, 64 * key, 64) for key in range(3)]
    for slot in made:
        slots.add(slot, [])
        assert slots.rest(slot)
    slots.wake(made[0])
    assert slots.oldest() is made[1]
    assert slots.oldest(spared=made[1]) is made[2]
    slots.rest(made[0])
    slots.remove(made[1])
    assert slots.idle() == [made[2], made[0]]


def test_a_slot_nobody_can_come_back_to_does_not_stay() -> None:
    slots = Slots()
    nameless, old, new = Slot([1], None, 0, 64), Slot([1], "k", 64, 64), Slot([1], "k", 128, 64)
    for slot in (nameless, old, new):
        slots.add(slot, [])
    assert not slots.rest(nameless)
    assert not slots.rest(old)  # the conversation has another one by now
    assert slots.rest(new)
    assert slots.forget("k") is new
    assert slots.forget("k") is None
    busy = Slot([1], "k", 192, 64)
    slots.add(busy, [])
    assert slots.forget("k") is None
    assert not slots.rest(busy)
    assert len(slots) == 0


@given(
    st.lists(st.tuples(st.sampled_from([64, 128, 256]), st.integers(0, 30), st.integers(1, 64)), max_size=40),
    st.floats(0, 5_000) | st.just(1e7),
)
def test_segments_cover_every_row_once(drawn: list[tuple[int, int, int]], call_cost: float) -> None:
    blocks = {(size, at): tokens for size, at, tokens in drawn}  # sizes may overlap here, which is of no matter
    rows = [(at * size, size, tokens) for (size, at), tokens in sorted(blocks.items())]
    offset, sizes, counts = np.array(rows, np.int64).reshape(-1, 3).T
    found = segments(offset, sizes, counts, call_cost)
    seen = [
        (segment.size, segment.offset // segment.size + block, segment.length)
        for segment in found
        for block in segment.rows
    ]
    assert [(size, at) for size, at, _ in seen] == sorted(blocks)
    assert all(length >= blocks[size, at] for size, at, length in seen)
    for segment in found:
        assert segment.offset % segment.size == 0
        assert segment.rows[0] == 0
        assert segment.rows[-1] == segment.blocks - 1
    cost = sum(segment.blocks * segment.length + call_cost for segment in found)
    assert cost <= sum(blocks.values()) + call_cost * len(blocks) + 1e-6  # never worse than a call for each row

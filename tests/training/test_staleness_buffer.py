"""Whatever is over first: nothing is learned from too late, twice or in part, and nobody waits for no reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from palestra.training.staleness_buffer import StalenessBuffer


@given(st.data(), st.integers(1, 4), st.integers(1, 3), st.integers(0, 4), st.integers(1, 20))
def test_nothing_becomes_too_old(data: Any, wanted: int, group_size: int, staleness: int, others: int) -> None:
    room = StalenessBuffer(groups_per_step=wanted, group_size=group_size, extra_groups=others, staleness=staleness)
    begun: list[int] = []  # the version, by group
    under_way: list[tuple[int, int]] = []
    learned: list[int] = []

    def fill(version: int) -> None:
        while not room.full:
            room.start((0, len(begun)), version)
            under_way.extend((len(begun), member) for member in range(group_size))
            begun.append(version)

    for version in range(8):
        fill(version)
        while not room.ready(version):
            assert under_way  # there is something to wait for
            group, member = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            room.put((0, group), SimpleNamespace(group=group, member=member))  # type: ignore[arg-type]
        taken = room.take()
        assert [t.member for t in taken] == list(range(group_size)) * wanted
        groups = [t.group for t in taken[::group_size]]
        assert all(version - begun[group] <= staleness for group in groups)
        learned += groups
        if staleness:
            fill(version)  # while the learner learns
        room.release()
    assert len(set(learned)) == len(learned)
    unlearned = [version for group, version in enumerate(begun) if group not in learned]
    assert all(8 - version <= staleness for version in unlearned)  # and the others can be learned from in time


def test_a_slow_one_is_waited_for_when_it_would_be_too_old_and_not_before() -> None:
    room = StalenessBuffer(groups_per_step=1, group_size=1, extra_groups=1, staleness=3)
    room.start((0, 0), 0)
    for version in range(3):
        room.start((0, version + 1), version)
        room.put((0, version + 1), SimpleNamespace(member=0))  # type: ignore[arg-type]
        assert room.ready(version)
        room.take()
        room.release()
    room.start((0, 4), 3)
    room.put((0, 4), SimpleNamespace(member=0))  # type: ignore[arg-type]
    assert not room.ready(3)
    room.put((0, 0), SimpleNamespace(member=0, late=True))  # type: ignore[arg-type]
    assert room.ready(3)
    assert [t.late for t in room.take()] == [True]  # type: ignore[attr-defined]

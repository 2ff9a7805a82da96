"""Test that every group is used once, complete and within the staleness bound, in whatever order episodes finish."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from palestra.training.staleness_buffer import StalenessBuffer


@given(st.data(), st.integers(1, 4), st.integers(1, 3), st.integers(0, 4), st.integers(1, 20))
def test_no_group_exceeds_the_staleness_bound(
    data: Any, wanted: int, group_size: int, staleness: int, others: int
) -> None:
    buffer = StalenessBuffer(groups_per_step=wanted, group_size=group_size, extra_groups=others, staleness=staleness)
    started: list[int] = []  # version of the weights by group
    in_progress: list[tuple[int, int]] = []
    learned: list[int] = []
    discarded: list[int] = []

    def fill(version: int) -> None:
        while not buffer.full:
            buffer.start((0, len(started)), version)
            in_progress.extend((len(started), member) for member in range(group_size))
            started.append(version)

    for version in range(8):
        fill(version)
        while not buffer.ready(version):
            assert in_progress  # an unfinished group exists
            group, member = in_progress.pop(data.draw(st.integers(0, len(in_progress) - 1)))
            buffer.put((0, group), SimpleNamespace(group=group, member=member))  # type: ignore[arg-type]
            members = buffer.complete((0, group))
            if members is not None and len(discarded) < 5 and data.draw(st.booleans()):
                assert len(members) == group_size
                buffer.discard((0, group))
                discarded.append(group)
                fill(version)
        taken = buffer.take()
        assert [t.member for t in taken] == list(range(group_size)) * wanted
        groups = [t.group for t in taken[::group_size]]
        assert all(version - started[group] <= staleness for group in groups)
        learned += groups
        if staleness:
            fill(version)  # new groups start during the update
        buffer.release()
        buffer.adapt(waiting=data.draw(st.floats(0, 2)), learning=1.0)
    used = learned + discarded
    assert len(set(used)) == len(used)
    unlearned = [version for group, version in enumerate(started) if group not in used]
    assert all(8 - version <= staleness for version in unlearned)  # the other groups can still be used in time


def put(buffer: StalenessBuffer, group: int, **fields: Any) -> None:
    buffer.put((0, group), SimpleNamespace(group=group, member=0, **fields))  # type: ignore[arg-type]


def test_the_buffer_waits_for_a_slow_group_only_at_its_bound() -> None:
    buffer = StalenessBuffer(groups_per_step=1, group_size=1, extra_groups=1, staleness=3)
    buffer.start((0, 0), 0)
    buffer.start((0, 1), 0)  # the slow group
    put(buffer, 0)
    for version in range(3):
        assert buffer.ready(version)
        buffer.take()
        buffer.release()
        buffer.start((0, version + 2), version + 1)
        put(buffer, version + 2)
    assert not buffer.ready(3)
    put(buffer, 1, late=True)
    assert buffer.ready(3)
    assert [t.late for t in buffer.take()] == [True]  # type: ignore[attr-defined]


def test_the_first_step_does_not_prefer_short_episodes() -> None:
    buffer = StalenessBuffer(groups_per_step=2, group_size=1, extra_groups=4, staleness=4)
    for group in range(6):
        buffer.start((0, group), 0)
    for group in (1, 3, 4, 5):
        put(buffer, group)
    assert not buffer.ready(0)  # group 0 started first
    put(buffer, 0)
    assert buffer.ready(0)  # without group 2, which belongs to a later step
    assert [t.group for t in buffer.take()] == [0, 1]
    buffer.release()
    assert buffer.ready(1)
    assert [t.group for t in buffer.take()] == [3, 4]  # later steps do not wait for slow groups


def test_more_groups_start_in_advance_only_while_the_trainer_waits() -> None:
    def admitted() -> int:
        count = 0
        while not buffer.full:
            buffer.start((0, len(started)), 0)
            started.append(count)
            count += 1
        return count

    buffer = StalenessBuffer(groups_per_step=8, group_size=1, extra_groups=20, staleness=4)
    started: list[int] = []
    assert admitted() == 16  # the current and the next step
    buffer.adapt(waiting=0.01, learning=1.0)
    assert admitted() == 0
    for _ in range(10):
        buffer.adapt(waiting=1.0, learning=1.0)
    assert admitted() == 12  # 28 in total, the maximum
    for _ in range(10):
        buffer.adapt(waiting=0.0, learning=1.0)
    for group in range(8):
        put(buffer, group)
    buffer.take()
    buffer.release()
    assert admitted() == 0  # 20 of 16

"""Test which groups a resumed asynchronous run plays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palestra.training.distributed import DistributedContext
from palestra.training.used_groups import UsedGroups

GROUPS = range(3)
KEYS = [(step, group) for step in range(4) for group in GROUPS]


@given(st.lists(st.sampled_from(KEYS), unique=True))
def test_a_resumed_run_plays_exactly_the_unused_groups(order: list[tuple[int, int]]) -> None:
    used = UsedGroups(GROUPS)
    for key in order:
        used.add(key)
    state = used.state(DistributedContext())
    resumed = UsedGroups(GROUPS)
    resumed.load(state)
    for run in (used, resumed):
        assert [key in run for key in KEYS] == [key in order for key in KEYS]
        assert all((step, group) in run for step in range(run.first) for group in GROUPS)
    assert resumed.first == used.first

    parts = [UsedGroups([0]), UsedGroups([1, 2])]  # with more processes
    for part in parts:
        part.load(state)
    assert [key in parts[key[1] > 0] for key in KEYS] == [key in order for key in KEYS]

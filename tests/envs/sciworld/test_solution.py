"""Test that shortened solutions need fewer turns and do not burn a substance that has to be frozen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.conformance import success_rate
from palestra.envs.sciworld.env import SciWorld
from palestra.envs.sciworld.solution import WAIT, shortened, unburnt
from tests.conformance.variants import COMPLETE

FAILING = [("freeze", 11), ("inclined-plane-friction-named-surfaces", 250)]
STEPS = st.sampled_from(["look at plane", "wait1", "wait", "open door", "examine pot"])


def ticks(path: tuple[str, ...]) -> int:
    return sum(WAIT if action == "wait" else 1 for action in path)


@given(st.lists(st.tuples(STEPS, st.integers(1, 45))))
def test_shortened_solutions_take_the_same_time_and_only_skip_observing(runs: list[tuple[str, int]]) -> None:
    path = tuple(action for action, count in runs for _ in range(count))
    short = shortened(path)
    assert ticks(short) == ticks(path)
    assert len(short) <= len(path)
    for what in ("open door", "examine pot"):
        assert short.count(what) == path.count(what)
    assert short[-1:] == path[-1:]
    watched = [action for action in path if action.startswith("look")]
    assert ("look at plane" in short) == bool(watched)  # at least one observation remains


def test_heating_is_shortened_only_if_the_path_fails() -> None:
    path = ("open oven", "activate oven", "examine ice", "use thermometer on ice", "examine ice", "pick up pot", "wait")
    assert unburnt(path, lambda _: True) == path
    assert unburnt(path, lambda _: False) == path
    assert unburnt(path, lambda tried: tried.count("examine ice") <= 1) == (*path[:4], *path[5:])
    assert unburnt(path, lambda tried: "examine ice" not in tried) == (*path[:2], *path[5:])


if COMPLETE:  # `make conformance`

    @pytest.mark.parametrize(("task", "variation"), FAILING)
    def test_variations_in_which_the_original_solution_fails(task: str, variation: int) -> None:
        """Test a variation in which chocolate burns and one in which a block slides for longer than the turn budget.

        ScienceWorld needs 10 s for each of their solutions, so only `make conformance` tests them.
        """

        class FixedVariation(SciWorld):
            def setup(self, options: dict[str, object]) -> None:
                super().setup({**options, "variation": variation})

        with FixedVariation(tasks=task, prepare_next=False) as env:
            assert success_rate(env, "expert", range(1)).value == 1.0

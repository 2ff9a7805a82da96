"""Test the selection of SFT trajectories, preference pairs and AgentEvol's training sets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.algorithms import Episode, ReBN, make_pairs, next_set, sft_weights, successes, turn_weights
from palestra.errors import BadValue
from palestra.rollout import collect
from palestra.rollout.types import Trajectory
from tests.algorithms.batches import trajectory
from tests.rollout.players import Solver

WON = trajectory([0.0, 1.0], member=0)
LOST = trajectory([0.0], member=1, success=False)
BROKEN = trajectory([0.5], member=2, failed=True)


def test_sft_weights() -> None:
    assert sft_weights([WON, LOST, BROKEN]) == [[1.0, 1.0], [0.0], [0.0]]
    assert sft_weights([WON, LOST, BROKEN], keep="all") == [[1.0, 1.0], [1.0], [0.0]]
    slip = replace(WON, turns=(replace(WON.turns[0], info={"invalid": "format"}), WON.turns[1]))
    assert sft_weights([slip], skip_invalid=True) == [[0.0, 1.0]]
    assert turn_weights([WON, LOST], [0.5, 2.0]) == [[0.5, 0.5], [2.0]]
    with pytest.raises(BadValue, match="keep must be one of success, all"):
        sft_weights([], keep="won")  # type: ignore[arg-type]


scored = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()), min_size=1, max_size=10
)


def tasks(rows: list[tuple[int, float, bool]]) -> list[Trajectory]:
    return [
        trajectory([score], seed=seed, member=i, failed=failed and i % 3 == 0)
        for i, (seed, score, failed) in enumerate(rows)
    ]


@given(scored, st.sampled_from([0.1, 0.25, 0.6]))
def test_all_pairs_are_formed(rows: list[tuple[int, float, bool]], margin: float) -> None:
    played = tasks(rows)
    expected = {
        (a.member, b.member)
        for a in played
        for b in played
        if a.seed == b.seed and not a.failure and not b.failure and a.total_reward - b.total_reward >= margin
    }
    computed = make_pairs(played, margin=margin, per_task=None)
    assert {(p.chosen.member, p.rejected.member) for p in computed} == expected
    assert len(computed) == len(expected)
    assert all(p.margin == p.chosen.total_reward - p.rejected.total_reward for p in computed)


@given(scored, st.integers(1, 3), st.integers(0, 9))
def test_the_widest_pairs_do_not_depend_on_the_order(
    rows: list[tuple[int, float, bool]], per_task: int, shuffle: int
) -> None:
    played = tasks(rows)
    computed = make_pairs(played, per_task=per_task)
    every = make_pairs(played, per_task=None)
    for seed in range(3):
        mine = [p.margin for p in computed if p.chosen.seed == seed]
        assert mine == sorted((p.margin for p in every if p.chosen.seed == seed), reverse=True)[:per_task]
    mixed = list(played)
    Random(shuffle).shuffle(mixed)
    again = make_pairs(mixed, per_task=per_task)
    names = [sorted((p.chosen.member, p.rejected.member) for p in pairs) for pairs in (computed, again)]
    assert names[0] == names[1]


def test_pairs_need_the_same_task_and_tokens() -> None:
    assert make_pairs([WON, LOST])[0].margin == 1.0
    assert make_pairs([WON, replace(LOST, seed=9)]) == []
    assert make_pairs([WON, replace(LOST, kwargs={"turns": 3})]) == []
    assert make_pairs([WON, trajectory([0.0], member=1, tokens=0)]) == []
    by_turns = make_pairs([WON, trajectory([1.0], member=1)], score=lambda t: -len(t.turns))
    assert [(p.chosen.member, p.rejected.member) for p in by_turns] == [(1, 0)]
    for options, message in (
        ({"margin": 0.0}, "margin must be greater than 0"),
        ({"per_task": 0}, "per_task must be at least 1"),
    ):
        bad: dict[str, Any] = options
        with pytest.raises(BadValue, match=message):
            make_pairs([], **bad)


def test_successes() -> None:
    duplicate = replace(WON, member=7)
    other = trajectory([0.5, 0.5], member=8)
    assert successes([LOST, WON, BROKEN, duplicate, other]) == [WON, other]
    assert successes([WON, other], per_task=1) == [WON]
    elsewhere = trajectory([1.0], seed=3)
    assert successes([WON, other, elsewhere], per_task=1) == [WON, elsewhere]


def test_next_set() -> None:
    base = [LOST, BROKEN, WON]  # all demonstrations are used, except failed episodes
    explored = [trajectory([0.75], member=4), trajectory([0.5], member=5), LOST, trajectory([1.0], seed=1)]
    computed = next_set(base, explored, base_weight=2.0)
    assert [(w.trajectory.member, w.weight) for w in computed] == [(1, 2.0), (0, 2.0), (4, 0.75), (5, 0.5), (0, 1.0)]
    assert [w.weight for w in next_set([], explored, weighting="equal")] == [1.0, 1.0, 1.0]
    assert [w.weight for w in next_set([], explored, weighting="task")] == [0.5, 0.5, 1.0]
    assert [w.weight for w in next_set([], [trajectory([-1.0])])] == [0.0], (
        "the weight of a success must not be negative"
    )
    for options, message in (
        ({"weighting": "sum"}, "weighting must be one of"),
        ({"base_weight": -1.0}, "base_weight"),
    ):
        bad: dict[str, Any] = options
        with pytest.raises(BadValue, match=message):
            next_set([], [], **bad)


def test_advantages_of_real_rollouts() -> None:
    """Check that later turns in the expert's games have larger advantages if returns are discounted."""
    result = asyncio.run(collect(Solver(), "game:GuessTheNumber-v0-easy", episodes=12, group_size=3, seed=4))
    assert len(result.trajectories) == 12
    batch = [Episode.from_trajectory(played) for played in result.trajectories]
    credit = ReBN(gamma=0.9).advantages(batch)
    assert [len(row) for row in credit.advantages] == [len(t.turns) for t in result.trajectories]
    assert credit.signal
    for row in credit.advantages:
        assert row == sorted(row)
    assert sft_weights(result.trajectories) == [[1.0] * len(t.turns) for t in result.trajectories]

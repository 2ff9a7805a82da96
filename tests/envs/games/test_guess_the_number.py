"""Tests for Guess the Number: feedback, turn limits and partial credit."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.envs.games.guess_the_number import GuessTheNumber
from palestra.errors import BadValue

SEEDS = st.integers(0, 10_000)
GUESSES = st.lists(st.integers(1, 50), min_size=1, max_size=7)


def game(**options: Any) -> GuessTheNumber:
    env = palestra.make("game:GuessTheNumber-v0-hard", **options).unwrapped
    assert isinstance(env, GuessTheNumber)
    return env


def play(env: GuessTheNumber, guesses: list[int]) -> list[float]:
    """Return the rewards of these guesses, up to the end of the episode."""
    rewards = []
    for guess in guesses:
        _, reward, terminated, _, _ = env.step(f"\\boxed{{{guess}}}")
        rewards.append(reward)
        if terminated:
            break
    return rewards


@given(seed=SEEDS)
def test_binary_search_always_wins(seed: int) -> None:
    env = game()
    env.reset(seed=seed)
    terminated = False
    while not terminated:
        _, reward, terminated, _, info = env.step(env.expert_action())
    assert info["success"]
    assert reward == 1.0
    assert info["turn"] <= 6


@pytest.mark.parametrize("progress_by", ["distance", "interval"])
@given(seed=SEEDS)
def test_partial_credit_sums_to_the_success_reward(progress_by: str, seed: int) -> None:
    env = game(partial_credit=True, progress_by=progress_by, success_reward=2.0)
    env.reset(seed=seed)
    rewards, terminated = [], False
    while not terminated:
        _, reward, terminated, _, _ = env.step(env.expert_action())
        rewards.append(reward)
    assert sum(rewards) == pytest.approx(2.0)
    assert all(reward >= 0 for reward in rewards)


@given(seed=SEEDS, guesses=GUESSES)
def test_credit_for_intervals_counts_the_numbers_that_agree_with_the_feedback(seed: int, guesses: list[int]) -> None:
    env = game(partial_credit=True, progress_by="interval")
    env.reset(seed=seed)
    rewards = play(env, guesses)
    played = guesses[: len(rewards)]
    if env.hidden in played:
        assert sum(rewards) == pytest.approx(1.0)
        return
    possible = [
        number
        for number in range(1, 51)
        if all((number < guess) == (env.hidden < guess) and number != guess for guess in played)
    ]
    assert sum(rewards) == pytest.approx(1 - math.log(len(possible)) / math.log(50))


@given(seed=SEEDS)
def test_credit_for_intervals_depends_only_on_the_feedback(seed: int) -> None:
    """Two games with the same conversation have the same rewards, which is not true of the distance."""
    guesses = [20, 35, 27, 23]
    rewards: dict[tuple[str, ...], set[tuple[float, ...]]] = {}
    for progress_by in ("distance", "interval"):
        rewards.clear()
        env = game(partial_credit=True, progress_by=progress_by)
        for offset in range(100):
            env.reset(seed=seed + offset)
            observations, credit, terminated = [], [], False
            for guess in guesses:
                if not terminated:
                    observation, reward, terminated, _, _ = env.step(f"\\boxed{{{guess}}}")
                    observations.append(str(observation))
                    credit.append(reward)
            rewards.setdefault(tuple(observations), set()).add(tuple(credit))
        same = all(len(values) == 1 for values in rewards.values())
        assert same == (progress_by == "interval")


def test_guesses_outside_the_interval_earn_nothing() -> None:
    env = game(partial_credit=True, progress_by="interval")
    env.reset(seed=0)
    env.hidden = 30
    assert play(env, [25])[0] == pytest.approx(1 - math.log(25) / math.log(50))
    assert play(env, [10, 25, 3]) == [0.0, 0.0, 0.0]


def test_an_unknown_measure_of_progress_is_refused() -> None:
    with pytest.raises(BadValue, match="progress_by must be 'distance' or 'interval', got 'bits'"):
        game(progress_by="bits")

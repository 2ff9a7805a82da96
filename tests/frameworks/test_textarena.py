"""Test TextArena games as Palestra environments."""

from __future__ import annotations

import random
import re

import pytest

import palestra
from palestra.errors import BadValue, UnknownEnv
from palestra.rollout import collect
from tests.frameworks.players import FirstNumbers


def test_a_game_is_reproducible_and_leaves_the_global_generator_unchanged() -> None:
    first, second = (palestra.make("textarena:GuessTheNumber-v0") for _ in range(2))
    state = random.getstate()
    prompt, _ = first.reset(seed=5)
    assert "Guess The Number" in str(prompt)
    assert second.reset(seed=5)[0] == prompt
    low, high = 1, 20
    while True:
        guess = (low + high) // 2
        step = first.step(f"[{guess}]")
        assert second.step(f"[{guess}]") == step
        if step.done:
            break
        assert "Guess The Number" not in str(step.observation)  # earlier messages are not repeated
        low, high = (guess + 1, high) if "higher" in str(step.observation) else (low, guess - 1)
    assert (step.reward, step.terminated, step.info["success"]) == (1.0, True, True)
    assert random.getstate() == state


def test_a_fork_is_independent() -> None:
    env = palestra.make("textarena:GuessTheNumber-v0")
    env.reset(seed=1)
    env.step("[10]")
    fork = env.fork()
    assert fork.step("[3]") == env.step("[3]")


def test_turns_are_limited() -> None:
    env = palestra.make("textarena:GuessTheNumber-v0", max_turns=1)
    env.reset(seed=2)
    step = env.step("no number")
    assert (step.truncated, step.info["success"]) == (True, False)


def test_an_opponent_plays_the_other_player() -> None:
    def first_free(observation: str) -> str:
        return f"[{re.findall(r'(?<![0-9])[0-8](?![0-9])', observation)[-1]}]"

    env = palestra.make("textarena:TicTacToe-v0", opponent=first_free)
    assert "Tic Tac Toe" in str(env.reset(seed=1)[0])
    step = env.step("[4]")
    assert not step.done
    with pytest.raises(BadValue, match="players"):
        palestra.make("textarena:TicTacToe-v0").reset(seed=1)


def test_unknown_games_are_reported() -> None:
    with pytest.raises(UnknownEnv, match="TextArena cannot create 'NoGame-v0'"):
        palestra.make("textarena:NoGame-v0")


async def _play() -> list[float]:
    result = await collect(FirstNumbers(), "textarena:GuessTheNumber-v0", episodes=4, seed=1)
    assert not result.failures
    return [trajectory.total_reward for trajectory in result.trajectories]


def test_rollouts_play_games() -> None:
    import asyncio

    rewards = asyncio.run(_play())
    assert rewards == asyncio.run(_play())
    assert all(0.0 <= reward <= 1.0 for reward in rewards)

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.errors import BadValue, EpisodeOver
from palestra.wrappers import Horizon

WRONG = r"\boxed{99}"  # a guess outside the range uses a turn and never wins


def play(env: palestra.Env) -> list[palestra.Step]:
    steps = [env.step(WRONG)]
    while not steps[-1].done:
        steps.append(env.step(WRONG))
    return steps


@given(turns=st.integers(1, 12))
def test_the_shorter_of_horizon_and_budget_ends_the_episode(turns: int) -> None:
    env = Horizon(palestra.make("game:GuessTheNumber-v0-hard"), turns)  # the game allows 7 turns
    env.reset(seed=1)
    steps = play(env)
    assert len(steps) == min(turns, 7)
    last = steps[-1]
    assert (last.terminated, last.truncated) == ((False, True) if turns < 7 else (True, False))
    assert last.info["success"] is False
    with pytest.raises(EpisodeOver):
        env.step(WRONG)


def test_a_win_on_the_last_turn_of_the_horizon_is_a_win() -> None:
    env = Horizon(palestra.make("game:GuessTheNumber-v0-easy"), 4)
    for seed in range(30):
        env.reset(seed=seed)
        step = env.step(env.expert_action() or "")
        while not step.done:
            step = env.step(env.expert_action() or "")
        assert step.terminated
        assert step.info["success"]


def test_changes_apply_from_the_next_episode() -> None:
    env = Horizon(palestra.make("game:GuessTheNumber-v0-hard"), 3)
    env.reset(seed=1)
    env.turns = 5
    assert len(play(env)) == 3
    env.reset()
    assert len(play(env)) == 5
    _, info = env.reset(options={"horizon": 2})
    assert info["horizon"] == 2
    assert len(play(env)) == 2
    env.reset()
    assert len(play(env)) == 5


def test_async_steps_give_the_same_result() -> None:
    async def run() -> int:
        env = Horizon(palestra.make("game:GuessTheNumber-v0-hard"), 3)
        await env.areset(seed=1)
        taken = 1
        while not (await env.astep(WRONG)).done:
            taken += 1
        return taken

    assert asyncio.run(run()) == 3


def test_forks_count_turns_independently() -> None:
    env = Horizon(palestra.make("game:GuessTheNumber-v0-hard"), 3)
    env.reset(seed=1)
    env.step(WRONG)
    fork = env.fork()
    assert len(play(env)) == 2
    assert len(play(fork)) == 2


def test_announce_adds_the_horizon_to_the_prompt() -> None:
    env = Horizon(palestra.make("game:GuessTheNumber-v0-hard"), 3, announce=True)
    assert "ends after 3 turns" in str(env.reset(seed=1)[0])


@pytest.mark.parametrize("turns", [0, -1, 2.5, True, "3"])
def test_invalid_horizons_are_rejected(turns: object) -> None:
    with pytest.raises(BadValue, match="the horizon must be"):
        Horizon(palestra.make("game:GuessTheNumber-v0-hard"), turns)  # type: ignore[arg-type]


def test_a_wrapped_env_passes_check_env() -> None:
    assert palestra.check_env(Horizon(palestra.make("game:GuessTheNumber-v0-easy"), 20)).passed

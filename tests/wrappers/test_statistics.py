from __future__ import annotations

import palestra
from palestra.wrappers import Statistics


def test_turns_returns_and_invalid_actions_are_counted() -> None:
    env = Statistics(palestra.make("game:GuessTheNumber-v0-easy"))
    env.reset(seed=4)
    step = env.step(r"\boxed{99}")
    assert (step.info["step_counter"], step.info["cumulative_rewards"]) == (1, 0.0)
    step = env.step("nothing to read")
    assert step.info["episode"] == {
        "turns": 2,
        "return": -0.1,
        "success": False,
        "truncated": False,
        "invalid_actions": 2,
    }
    assert env.episodes == [step.info["episode"]]
    _, info = env.reset(seed=4)
    assert (info["prev_ep_step_counter"], info["prev_ep_cumulative_rewards"]) == (2, -0.1)
    assert info["step_counter"] == 0


def test_forks_count_independently() -> None:
    env = Statistics(palestra.make("game:GuessTheNumber-v0-easy"))
    env.reset(seed=4)
    fork = env.fork()
    fork.step("x")
    assert env.episodes == []
    assert env.step_counter == 0

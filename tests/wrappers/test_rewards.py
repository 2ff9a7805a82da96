from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.errors import BadValue, EnvFailed
from palestra.types import Step
from palestra.wrappers import ClipReward, ScaleReward, ShapeReward, TurnCost

numbers = st.floats(-5, 5)


def game() -> palestra.Env:
    env = palestra.make("game:GuessTheNumber-v0-easy")
    env.reset(seed=1)
    return env


@given(scale=numbers, shift=numbers)
def test_scale(scale: float, shift: float) -> None:
    env = ScaleReward(game(), scale, shift)
    step = env.step("x")
    assert step.reward == -0.1 * scale + shift
    assert step.info["raw_reward"] == -0.1
    assert env.reward_range[0] <= step.reward <= env.reward_range[1]


@given(low=numbers, high=numbers)
def test_clip(low: float, high: float) -> None:
    if low > high:
        with pytest.raises(BadValue, match="must not be above"):
            ClipReward(game(), low, high)
        return
    env = ClipReward(game(), low, high)
    step = env.step("x")
    assert step.reward == min(max(-0.1, low), high)
    assert env.reward_range[0] <= step.reward <= env.reward_range[1]


@given(cost=numbers)
def test_turn_cost(cost: float) -> None:
    env = TurnCost(game(), cost)
    step = env.step("x")
    assert step.reward == -0.1 - cost
    assert env.reward_range[0] <= step.reward <= env.reward_range[1]


def test_shape_receives_action_and_step_and_raw_reward_is_the_tasks() -> None:
    def shape(action: str, step: palestra.Step) -> float:
        return len(action) + step.reward

    env = ShapeReward(ScaleReward(game(), 10), shape)
    step = env.step("xyz")
    assert step.reward == 3 - 1.0
    assert step.info["raw_reward"] == -0.1


@pytest.mark.parametrize("reward", [float("inf"), float("nan"), None, "1"])
def test_invalid_rewards_stay_invalid(reward: float) -> None:
    def shape(action: str, step: Step) -> float:
        return reward

    with pytest.raises(EnvFailed, match="finite number"):
        ShapeReward(game(), shape).step("x")
    with pytest.raises(EnvFailed, match="finite number"):
        ClipReward(_Returns(game(), reward), 0.0, 1.0).step("x")


class _Returns(palestra.Wrapper):
    def __init__(self, env: palestra.Env, reward: float) -> None:
        super().__init__(env)
        self.reward = reward

    def after_step(self, action: str, step: Step) -> Step:
        return step._replace(reward=self.reward)

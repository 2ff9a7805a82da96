"""Wrappers that change rewards; `info["raw_reward"]` contains the task's original reward."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from palestra.core import Env, Wrapper
from palestra.errors import BadValue
from palestra.types import Step, finite_reward


class _RewardWrapper(Wrapper):
    @abstractmethod
    def new_reward(self, action: str, step: Step) -> float:
        """Return the reward that replaces `step.reward`."""

    def after_step(self, action: str, step: Step) -> Step:
        step = step._replace(
            reward=finite_reward(step.reward)
        )  # ClipReward would turn an infinite reward into a valid one
        # In nested reward wrappers, the innermost one sets `raw_reward`.
        info = {"raw_reward": step.reward, **step.info}
        reward = self.new_reward(action, step)
        return step._replace(reward=float(reward) if isinstance(reward, bool) else finite_reward(reward), info=info)


class ShapeReward(_RewardWrapper):
    """Replace each reward with `shape(action, step)`; `reward_range` is the range of the new rewards."""

    def __init__(
        self,
        env: Env,
        shape: Callable[[str, Step], float],
        *,
        reward_range: tuple[float, float] = (float("-inf"), float("inf")),
    ) -> None:
        super().__init__(env)
        self.shape = shape
        self.reward_range = reward_range

    def new_reward(self, action: str, step: Step) -> float:
        return self.shape(action, step)


class ScaleReward(_RewardWrapper):
    """Replace each reward with `reward * scale + shift`."""

    def __init__(self, env: Env, scale: float = 1.0, shift: float = 0.0) -> None:
        super().__init__(env)
        self.scale = scale
        self.shift = shift
        ends = [end * scale + shift for end in env.reward_range]
        self.reward_range = (min(ends), max(ends))

    def new_reward(self, action: str, step: Step) -> float:  # noqa: ARG002
        return step.reward * self.scale + self.shift


class ClipReward(_RewardWrapper):
    """Clip each reward to the range from `low` to `high`."""

    def __init__(self, env: Env, low: float, high: float) -> None:
        super().__init__(env)
        if low > high:
            raise BadValue(f"low must not be above high, got {low} and {high}")
        self.low = low
        self.high = high
        inner = env.reward_range
        self.reward_range = (min(max(inner[0], low), high), max(min(inner[1], high), low))

    def new_reward(self, action: str, step: Step) -> float:  # noqa: ARG002
        return min(max(step.reward, self.low), self.high)


class TurnCost(_RewardWrapper):
    """Subtract `cost` from the reward in every turn, so that shorter solutions have a higher return."""

    def __init__(self, env: Env, cost: float) -> None:
        super().__init__(env)
        self.cost = cost
        low, high = env.reward_range
        self.reward_range = (low - cost, high - cost) if cost >= 0 else (low, high - cost)

    def new_reward(self, action: str, step: Step) -> float:  # noqa: ARG002
        return step.reward - self.cost

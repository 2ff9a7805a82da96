"""Change rewards; `info["raw_reward"]` keeps what the task gave."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from palestra.core import Env, Wrapper
from palestra.errors import BadValue
from palestra.types import Step


class _Reward(Wrapper):
    @abstractmethod
    def shaped(self, action: str, step: Step) -> float:
        """The reward instead of `step.reward`."""

    def after_step(self, action: str, step: Step) -> Step:
        info = {"raw_reward": step.reward, **step.info}  # the innermost one's raw reward is the task's
        return step._replace(reward=float(self.shaped(action, step)), info=info)


class ShapeReward(_Reward):
    """`shape(action, step) -> reward`, with the range it keeps to (unbounded unless said)."""

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

    def shaped(self, action: str, step: Step) -> float:
        return self.shape(action, step)


class ScaleReward(_Reward):
    """reward * scale + shift."""

    def __init__(self, env: Env, scale: float = 1.0, shift: float = 0.0) -> None:
        super().__init__(env)
        self.scale = scale
        self.shift = shift
        ends = [end * scale + shift for end in env.reward_range]
        self.reward_range = (min(ends), max(ends))

    def shaped(self, action: str, step: Step) -> float:  # noqa: ARG002
        return step.reward * self.scale + self.shift


class ClipReward(_Reward):
    """The reward, held between `low` and `high`."""

    def __init__(self, env: Env, low: float, high: float) -> None:
        super().__init__(env)
        if low > high:
            raise BadValue(f"low must not be above high, got {low} and {high}")
        self.low = low
        self.high = high
        inner = env.reward_range
        self.reward_range = (min(max(inner[0], low), high), max(min(inner[1], high), low))

    def shaped(self, action: str, step: Step) -> float:  # noqa: ARG002
        return min(max(step.reward, self.low), self.high)


class TurnCost(_Reward):
    """Every turn costs `cost`, so that shorter solutions earn more."""

    def __init__(self, env: Env, cost: float) -> None:
        super().__init__(env)
        self.cost = cost
        low, high = env.reward_range
        self.reward_range = (low - cost, high - cost) if cost >= 0 else (low, high - cost)

    def shaped(self, action: str, step: Step) -> float:  # noqa: ARG002
        return step.reward - self.cost

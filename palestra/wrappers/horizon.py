"""A limit on turns that cuts the episode short without judging it."""

from __future__ import annotations

from typing import Any

from palestra.core import Env, Reset, Wrapper
from palestra.errors import BadValue, EpisodeOver
from palestra.types import Observation, Step


class Horizon(Wrapper):
    """After `turns` turns the episode is truncated: neither won nor lost, so that a learner may bootstrap.

    `turns` may be changed at any time and holds from the next `reset` on; `reset(options={"horizon": n})` sets it for
    that episode alone. None: no limit. The prompt still tells the task's own budget, unless `announce` is on.
    """

    def __init__(self, env: Env, turns: int | None, *, announce: bool = False) -> None:
        super().__init__(env)
        self.turns = turns
        self.announce = announce
        self._limit = _checked(turns)
        self._taken = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self.after_reset(*self.env.reset(seed=seed, options=self._begin(options)))

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self.after_reset(*await self.env.areset(seed=seed, options=self._begin(options)))

    def _begin(self, options: dict[str, Any] | None) -> dict[str, Any] | None:
        """Take the horizon for this episode; the inner env gets the other options."""
        inner = dict(options or {})
        self._limit = _checked(inner.pop("horizon", self.turns))
        self._taken = 0
        return inner or None

    def after_reset(self, observation: Observation, info: dict[str, Any]) -> Reset:
        if self.announce and self._limit is not None and isinstance(observation, str):
            observation = f"{observation}\n\nThis conversation ends after {self._limit} turns."
        return observation, {**info, "horizon": self._limit}

    def before_step(self, action: str) -> str:
        if self._limit is not None and self._taken >= self._limit:
            raise EpisodeOver(f"the horizon of {self._limit} turns was reached; call reset() for the next episode")
        return action

    def after_step(self, action: str, step: Step) -> Step:  # noqa: ARG002
        self._taken += 1
        if self._limit is None or self._taken < self._limit or step.done:
            return step
        return step._replace(truncated=True, info={**step.info, "success": False, "ending": "horizon"})


def _checked(turns: object) -> int | None:
    if turns is None or (isinstance(turns, int) and not isinstance(turns, bool) and turns >= 1):
        return turns
    raise BadValue(f"a horizon is a whole number of turns from 1 up, or None, got {turns!r}")

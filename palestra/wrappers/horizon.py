"""Truncate episodes after a number of turns."""

from __future__ import annotations

from typing import Any

from palestra.core import Env, Reset, Wrapper
from palestra.errors import BadValue, EpisodeOver
from palestra.types import Observation, Step


class Horizon(Wrapper):
    """Truncate an episode after `turns` turns, so that a learner can bootstrap from the value of the last state.

    A new value of `turns` takes effect at the next `reset`; `reset(options={"horizon": n})` sets the limit for a single
    episode. None disables the limit. The prompt mentions this limit only if `announce` is set.
    """

    def __init__(self, env: Env, turns: int | None, *, announce: bool = False) -> None:
        super().__init__(env)
        self.turns = turns
        self.announce = announce
        self._limit = _check_turns(turns)
        self._taken = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self.after_reset(*self.env.reset(seed=seed, options=self._start(options)))

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self.after_reset(*await self.env.areset(seed=seed, options=self._start(options)))

    def _start(self, options: dict[str, Any] | None) -> dict[str, Any] | None:
        """Set this episode's horizon and return the remaining options, which are passed to the inner env."""
        inner = dict(options or {})
        self._limit = _check_turns(inner.pop("horizon", self.turns))
        self._taken = 0
        return inner or None

    def after_reset(self, observation: Observation, info: dict[str, Any]) -> Reset:
        if self.announce and self._limit is not None and isinstance(observation, str):
            observation = f"{observation}\n\nThis conversation ends after {self._limit} turns."
        return observation, {**info, "horizon": self._limit}

    def before_step(self, action: str) -> str:
        if self._limit is not None and self._taken >= self._limit:
            raise EpisodeOver(
                f"the episode was truncated after {self._limit} turns; call reset() to start the next one"
            )
        return action

    def after_step(self, action: str, step: Step) -> Step:  # noqa: ARG002
        self._taken += 1
        if self._limit is None or self._taken < self._limit or step.done:
            return step
        return step._replace(truncated=True, info={**step.info, "success": False, "ending": "horizon"})


def _check_turns(turns: object) -> int | None:
    if turns is None or (isinstance(turns, int) and not isinstance(turns, bool) and turns >= 1):
        return turns
    raise BadValue(f"the horizon must be an integer of at least 1, or None, got {turns!r}")

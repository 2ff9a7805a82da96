"""Count the turns and rewards in each episode."""

from __future__ import annotations

from typing import Any

from palestra.core import Env, Reset, Wrapper
from palestra.types import Observation, Step


class Statistics(Wrapper):
    """Add `info["episode"]` to the last step of each episode: turns, return, success and number of invalid actions.

    The `episodes` attribute collects these entries. Every step also has `step_counter` and `cumulative_rewards` in its
    `info`, as in GEM.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.episodes: list[dict[str, Any]] = []
        self._clear()

    def _clear(self) -> None:
        self.step_counter = 0
        self.cumulative_rewards = 0.0
        self.invalid_actions = 0

    def after_reset(self, observation: Observation, info: dict[str, Any]) -> Reset:
        previous = {
            "prev_ep_step_counter": self.step_counter,
            "prev_ep_cumulative_rewards": self.cumulative_rewards,
        }
        self._clear()
        return observation, {**info, "step_counter": 0, "cumulative_rewards": 0.0, **previous}

    def after_step(self, action: str, step: Step) -> Step:  # noqa: ARG002
        self.step_counter += 1
        self.cumulative_rewards += step.reward
        self.invalid_actions += "invalid" in step.info
        info = {**step.info, "step_counter": self.step_counter, "cumulative_rewards": self.cumulative_rewards}
        if step.done:
            info["episode"] = {
                "turns": self.step_counter,
                "return": self.cumulative_rewards,
                "success": bool(step.info.get("success")),
                "truncated": step.truncated,
                "invalid_actions": self.invalid_actions,
            }
            self.episodes.append(info["episode"])
        return step._replace(info=info)

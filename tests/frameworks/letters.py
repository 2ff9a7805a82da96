"""An environment with three turns in which an untrained model earns different rewards."""

from __future__ import annotations

from typing import Any

from palestra.core import Env, Reset
from palestra.types import Step


class Letters(Env):
    """Rewards replies with many different characters."""

    reward_range = (0.0, 1.0)
    max_turns = 3

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        del options
        self.start_episode(seed)
        self.turn = 0
        return "Write.", {"seed": self.seed}

    def step(self, action: str) -> Step:
        self.turn += 1
        reward = min(1.0, len(set(action)) / 16) / 3
        return Step("Again.", reward, self.turn == 3, False, {"success": reward > 0.2} if self.turn == 3 else {})

"""Environment whose faults depend on the seed, and the outcomes of its episodes without faults."""

from __future__ import annotations

import os
import sys
import time
from random import Random
from typing import Any

from palestra.core import Env, Reset
from palestra.types import Step

REWARDS: dict[str, Any] = {"nan": float("nan"), "inf": float("inf"), "none": None, "text": "1.0", "list": [1.0]}
FAULTS = ("raise", "exit", *REWARDS)
PROCESS_FAULTS = ("kill", "hang")  # only for environments in worker processes


class Unreliable(Env):
    """Env with two steps. The second one fails for some seeds; `faults` lists the possible failures."""

    reward_range = (0.0, 1.0)

    def __init__(self, *, chaos: int = 0, faults: list[str] | None = None) -> None:
        self.chaos = chaos
        self.faults = faults or []

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.episode_seed = self.start_episode(seed)
        self.turn = 0
        return f"task {self.episode_seed}", {"seed": self.episode_seed}

    def step(self, action: str) -> Step:
        self.turn += 1
        if self.turn == 1:
            return Step("half", 0.25, False, False, {})
        fault = fault_of(self.episode_seed, self.chaos, self.faults)
        if fault == "raise":
            raise OSError("requested")
        if fault == "exit":
            sys.exit(0)
        if fault == "kill":
            os._exit(9)
        if fault == "hang":
            time.sleep(3600)
        solved = is_solvable(self.episode_seed)
        return Step("over", REWARDS.get(fault, 0.75 * solved), True, False, {"success": solved})

    def sample_random_action(self) -> str:
        return f"{self.player_rng.random()}"


def fault_of(seed: int, chaos: int, faults: list[str]) -> str:
    """Return the fault in the episode with this seed, or "" if it has none."""
    rng = Random(f"{seed} {chaos}")
    return rng.choice(faults) if faults and rng.random() < 0.4 else ""


def is_solvable(seed: int) -> bool:
    return Random(f"{seed}").random() < 0.5

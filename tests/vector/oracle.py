"""Reference implementation of a vector, which runs one env at a time and does not use the vector code."""

from __future__ import annotations

from typing import Any

from palestra.core import Env
from palestra.seeding import child_seed, nth_seed
from palestra.workers.types import Autoreset

ACCIDENTS = {"raise", "quit", "hang", "spin", "exit", "kill", "eat", "four", "lambda", "reward"}


class OneEnv:
    """One env with autoreset. All kinds of failures have the same result."""

    def __init__(self, env: Env, seed: int, index: int, autoreset: Autoreset) -> None:
        self.env = env
        self.root = child_seed(seed, index)
        self.episode = -1
        self.autoreset = autoreset
        self.pending = False

    def reset(self) -> str:
        self.episode += 1
        self.pending = False
        self.seed = self.root if self.episode == 0 else nth_seed(self.root, self.episode)
        observation, _ = self.env.reset(seed=self.seed)
        return str(observation)

    def step(self, action: str) -> tuple[Any, ...]:
        """Take an action and return (observation, reward, terminated, truncated, failed, final observation)."""
        if self.pending:
            return (self.reset(), 0.0, False, False, False, None)
        if action.partition(" ")[0] in ACCIDENTS:
            if self.autoreset == "same_step":
                return (self.reset(), None, False, True, True, None)
            self.pending = self.autoreset == "next_step"
            return ("", None, False, True, True, None)
        observation, reward, terminated, truncated, _ = self.env.step(action)
        if terminated or truncated:
            if self.autoreset == "same_step":
                return (self.reset(), reward, terminated, truncated, False, observation)
            self.pending = self.autoreset == "next_step"
        return (observation, reward, terminated, truncated, False, None)


def seen(observation: Any, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> tuple[Any, ...]:
    """Convert the result of a vector's env to the reference implementation's format."""
    failed = "failure" in info
    assert failed == (reward != reward)  # the reward is NaN if and only if the step failed
    return (observation, None if failed else reward, terminated, truncated, failed, info.get("final_observation"))

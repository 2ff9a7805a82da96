"""Environments that vector.py measures with: one that computes, one that sleeps, one that has accidents."""

from __future__ import annotations

import os
import time
from typing import Any

from palestra.core import Env, Reset, Wrapper
from palestra.types import Step


class Busy(Env):
    """A step is so many rounds of pure Python."""

    def __init__(self, *, rounds: int) -> None:
        self.rounds = rounds

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:  # noqa: ARG002
        return "go", {"seed": self.start_episode(seed)}

    def step(self, action: str) -> Step:  # noqa: ARG002
        return Step(str(spin(self.rounds)), 0.0, False, False, {})

    def spent(self) -> float:
        """CPU seconds of the process this env lives in."""
        return time.process_time()


def spin(rounds: int) -> int:
    total = 0
    for i in range(rounds):
        total += i * i
    return total


def rounds_in(seconds: float) -> int:
    """How many rounds this machine does in that time, at its best."""
    rounds, best = 5_000, float("inf")
    for _ in range(30):
        began = time.perf_counter()
        spin(rounds)
        best = min(best, time.perf_counter() - began)
    return int(rounds * seconds / best)


class Accident(Env):
    """Counts; raises, hangs or ends the process when told to."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:  # noqa: ARG002
        seed = self.start_episode(seed)
        self.turn = 0
        return f"episode {seed}", {"seed": seed}

    def step(self, action: str) -> Step:
        if action == "raise":
            raise RuntimeError("told to")
        if action == "hang":
            time.sleep(3600)
        if action == "exit":
            os._exit(1)
        self.turn += 1
        return Step(f"{self.seed} {self.turn} {action}", 0.0, self.turn == 20, False, {})


def make_sleepy() -> Env:
    """Guess the Number, 50 ms a step."""
    from palestra import make

    return Sleepy(make("game:GuessTheNumber-v0-hard"))


class Sleepy(Wrapper):
    def before_step(self, action: str) -> str:
        time.sleep(0.05)
        return action

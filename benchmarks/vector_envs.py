"""Environments for vector.py: one uses the CPU, one sleeps, one fails on request."""

from __future__ import annotations

import os
import time
from typing import Any

from palestra.core import Env, Reset, Wrapper
from palestra.types import Step


class Busy(Env):
    """Run `rounds` iterations of a pure Python loop per step."""

    def __init__(self, *, rounds: int) -> None:
        self.rounds = rounds

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:  # noqa: ARG002
        return "go", {"seed": self.start_episode(seed)}

    def step(self, action: str) -> Step:  # noqa: ARG002
        return Step(str(spin(self.rounds)), 0.0, False, False, {})

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process that runs this env."""
        return time.process_time()


def spin(rounds: int) -> int:
    total = 0
    for i in range(rounds):
        total += i * i
    return total


def rounds_in(seconds: float) -> int:
    """Return the number of `spin` iterations that fit into `seconds`, from the fastest of 30 runs."""
    rounds, best = 5_000, float("inf")
    for _ in range(30):
        start = time.perf_counter()
        spin(rounds)
        best = min(best, time.perf_counter() - start)
    return int(rounds * seconds / best)


class Faulty(Env):
    """Count the steps. The actions `raise`, `hang` and `exit` raise an exception, block, and exit the process."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:  # noqa: ARG002
        seed = self.start_episode(seed)
        self.turn = 0
        return f"episode {seed}", {"seed": seed}

    def step(self, action: str) -> Step:
        if action == "raise":
            raise RuntimeError("requested by the action")
        if action == "hang":
            time.sleep(3600)
        if action == "exit":
            os._exit(1)
        self.turn += 1
        return Step(f"{self.seed} {self.turn} {action}", 0.0, self.turn == 20, False, {})


def make_sleepy() -> Env:
    """Return Guess the Number with a delay of 50 ms per step."""
    from palestra import make

    return Sleepy(make("game:GuessTheNumber-v0-hard"))


class Sleepy(Wrapper):
    def before_step(self, action: str) -> str:
        time.sleep(0.05)
        return action

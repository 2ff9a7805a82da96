"""Environments for tests whose actions can make them raise an exception, hang, crash or use up memory.

Worker processes import this module, so it imports no test library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import Any

from palestra.core import Env, Reset
from palestra.types import Step


class Trouble(Env):
    """Env whose observations depend on the seed and all previous actions. Some actions cause failures."""

    def __init__(
        self, *, turns: int = 8, nap: float = 0.0, bad_seed_reset: bool = False, build_seconds: float = 0.0
    ) -> None:
        time.sleep(build_seconds)
        self.turns = turns
        self.nap = nap
        self.bad_seed_reset = bad_seed_reset
        self.closed = False

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        seed = self.start_episode(seed)
        if self.bad_seed_reset and seed % 4 == 0:
            raise OSError("no episode can start with this seed")
        self.turn = 0
        self.state = self.rng.getrandbits(32)
        return f"start {self.state:08x}", {"seed": seed, "options": options, "pid": os.getpid()}

    def step(self, action: str) -> Step:
        if self.nap:
            time.sleep(self.nap)
        word, _, rest = action.partition(" ")
        if word == "raise":
            raise ZeroDivisionError(f"requested: {rest}")
        if word == "quit":
            sys.exit(3)
        if word == "hang":
            while True:
                time.sleep(0.01)
        if word == "wait":  # until the test creates this file
            while not os.path.exists(rest):  # noqa: PTH110
                time.sleep(0.005)
        if word == "sleep":
            time.sleep(float(rest))
        if word == "spin":  # blocks while holding the GIL
            ctypes.PyDLL(None).sleep(int(rest))
        if word == "exit":
            os._exit(7)
        if word == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "eat":
            self.food = bytearray(int(rest))
        if word == "child":
            subprocess.Popen(["sleep", "600"])
        if word == "lambda":
            return Step("cannot travel", 0.0, False, False, {"value": lambda: 0})
        if word == "four":
            return ("only", 0.0, False, False)  # type: ignore[return-value]
        if word == "reward":
            reward: Any = {"nan": float("nan"), "none": None, "text": "1.0"}[rest]
            return Step("no reward", reward, False, False, {})
        if word == "clock":
            return Step(f"{time.monotonic_ns()}", 0.0, False, False, {})
        self.turn += 1
        self.state = (self.state * 1_000_003 + self.rng.getrandbits(32) + sum(action.encode())) % 2**32
        over = word == "end" or self.turn >= self.turns
        info: dict[str, Any] = {"turn": self.turn}
        if over:
            info["success"] = word == "end"
        return Step(f"{self.turn} {self.state:08x}", float(word == "end"), over, False, info)

    def sample_random_action(self) -> str:
        return f"play {self.player_rng.randrange(1000)}"

    def close(self) -> None:
        self.closed = True

    @classmethod
    def after(cls, seed: int, *actions: str) -> str:
        """Return the observation after taking these actions in an episode with this seed."""
        env = cls()
        observation, _ = env.reset(seed=seed)
        for action in actions:
            observation = env.step(action).observation
        return str(observation)


def make_trouble(**kwargs: Any) -> Env:
    return Trouble(**kwargs)


class SlowReset(Trouble):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        time.sleep(self.nap)
        return "awake", {}


class DiesAtOnce(Trouble):
    def __init__(self) -> None:
        os._exit(9)


class FailsAtOnce(Trouble):
    def __init__(self) -> None:
        raise OSError("not today")


class Echo(Trouble):
    def step(self, action: str) -> Any:
        return action, 0.0, False, False, {}

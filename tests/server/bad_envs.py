"""Environment for server tests whose actions can make it fail. `bad_ids.py` registers it in server processes."""

from __future__ import annotations

import asyncio
import math
import os
import time
from pathlib import Path
from typing import Any, Self

from palestra import Env, Step
from palestra.core import Reset
from palestra.errors import BadValue, EpisodeOver, ResetNeeded

MEGABYTE = 1 << 20


class Mute(Exception):
    """Exception that cannot be converted to a string."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


class Tricky(Env):
    """Env whose actions are commands such as "sleep 1" or "raise". The observation lists all commands so far."""

    reward_range = (0.0, 1.0)

    def __init__(
        self, *, word: str = "", size: int = 0, opens: float = 0.0, forks: float = 0.0, fails: bool = False
    ) -> None:
        if size < 0:
            raise BadValue("size must be at least 0")
        if fails:
            raise RuntimeError("the constructor failed")
        time.sleep(opens)
        self.word = word
        self.forks = forks  # duration of a fork in seconds
        self.done: list[str] | None = None
        self.over = False
        self.allocated: list[bytes] = []

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        seed = self.start_episode(seed)
        if options and options.get("raises"):
            raise RuntimeError("the reset failed")
        self.done, self.over = [], False
        return f"started {seed}", {"seed": seed}

    def step(self, action: str) -> Step:
        if self.done is None:
            raise ResetNeeded("call reset first")
        if self.over:
            raise EpisodeOver("the episode is over")
        self.done.append(action)
        command, _, argument = action.partition(" ")
        observation: Any = " ".join(self.done[-50:])
        reward, info = 0.0, {"count": len(self.done)}
        if command == "sleep":
            time.sleep(float(argument))
        elif command == "spin":  # runs forever, but can be interrupted by an exception
            while True:
                time.sleep(0.01)
        elif command == "wait":  # until the test creates this file
            while not Path(argument).exists():
                time.sleep(0.005)
        elif command == "raise":
            raise RuntimeError("the step failed")
        elif command == "mute":
            raise Mute
        elif command == "cancel":
            raise asyncio.CancelledError
        elif command == "half":
            raise RuntimeError("\ud800")
        elif command == "sysexit":
            raise SystemExit(3)
        elif command == "exit":
            os._exit(7)
        elif command == "eat":
            self.allocated.append(b"x" * (int(argument) * MEGABYTE))
        elif command == "big":
            observation = "x" * (int(argument) * MEGABYTE)
        elif command == "image":
            picture = bytes(range(256)) * (int(argument) * MEGABYTE // 256)
            observation = [{"type": "text", "text": "look"}, {"type": "image", "image": picture}]
        elif command == "nan":
            reward = math.nan
        elif command == "reward":
            reward = {"inf": math.inf, "none": None, "text": "1", "bool": True}[argument]  # type: ignore[assignment]
        elif command == "surrogate":
            observation = "\ud800"
        elif command == "object":
            info["object"] = object()  # type: ignore[assignment]
        elif command == "end":
            self.over, reward = True, 1.0
            info["success"] = True
        return Step(observation, reward, self.over, False, info)

    def fork(self) -> Self:
        time.sleep(self.forks)
        return super().fork()

    def sample_random_action(self) -> str:
        return str(self.player_rng.randrange(1000))

    def expert_action(self) -> str | None:
        return "end"

    def example_action(self) -> str:
        return "end"

    def render(self, mode: str = "text") -> str | bytes | None:
        shown = " ".join(self.done or ())
        return shown if mode == "text" else b"\x89PNG" + shown.encode()


TRICKY = "bad:Tricky-v0"

"""Agent functions, graders and an unreliable environment for the evaluation tests."""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from typing import Any, ClassVar

import palestra
from palestra.errors import EnvFailed
from palestra.rollout import Trajectory
from palestra.types import Message, Observation, Step

GAME = "game:GuessTheNumber-v0-easy"


def guess(observation: str, seed: int, turn: int) -> str:
    """Return a guess that depends on the task, the attempt and the turn."""
    return f"\\boxed{{{Random(seed + turn).randint(1, 10)}}}"


def slow_guess(observation: str, seed: int, turn: int) -> str:
    time.sleep(0.004)
    return guess(observation, seed, turn)


def first(text: str) -> str:
    """Accept the observation as the first argument, which may have any name."""
    return "\\boxed{5}"


async def counting(messages: list[Message]) -> str:
    """Guess the turn number, computed from the length of the conversation."""
    return f"\\boxed{{{len(messages) // 2 + 1}}}"


def choosy(observation: str, mood: str = "good", *, seed: int = -1, info: dict[str, Any] | None = None) -> str:
    """Accept some arguments by name, and check that an unknown argument has its default value."""
    assert mood == "good"
    assert seed >= 0
    assert info is not None
    return "\\boxed{5}"


def anything(*args: Any) -> str:
    assert len(args) == 1
    return "\\boxed{5}"


def broken(observation: str) -> str:
    raise RuntimeError("no idea")


def wordless(observation: str) -> Any:
    return 7


def greedy(observation: str, wallet: int) -> str:
    return ""


def short_is_good(trajectory: Trajectory) -> bool:
    return len(trajectory.turns) <= 2


def half(trajectory: Trajectory) -> dict[str, Any]:
    return {"success": True, "score": 0.5, "reward": 0.25}


async def judged_elsewhere(trajectory: Trajectory) -> float:
    return 1.0


def sulking(trajectory: Trajectory) -> float:
    if trajectory.seed % 2:
        raise RuntimeError("will not")
    return 0.0


class Flaky(palestra.Env):
    """Env with one correct number; resets with selected seeds fail a specified number of times."""

    failures: ClassVar[dict[int, int]] = {}  # number of failing resets per seed
    tried: ClassVar[Counter[int]] = Counter()
    played: ClassVar[Counter[int]] = Counter()
    reply: ClassVar[str] = "What is it?"
    wanted: ClassVar[int] = 3
    turns: ClassVar[int] = 2
    inline = True

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        seed = self.start_episode(seed)
        type(self).tried[seed] += 1
        if type(self).tried[seed] <= type(self).failures.get(seed, 0):
            raise EnvFailed(f"the reset with seed {seed} failed")
        self.left = type(self).turns
        return f"{type(self).reply} ({seed})", {"seed": seed}

    def step(self, action: str) -> Step:
        self.left -= 1
        if self.left:
            return Step("Once more.", 0.0, False, False, {})
        type(self).played[self.seed] += 1
        good = action == str(type(self).wanted)
        return Step("Thank you.", float(good), True, False, {"success": good, "ending": "solved" if good else "lost"})

    @classmethod
    def forget(cls) -> None:
        cls.failures, cls.reply, cls.wanted, cls.turns = {}, "What is it?", 3, 2
        cls.tried, cls.played = Counter(), Counter()


def three(observation: str) -> str:
    return "3"


def by_seed(observation: str) -> str:
    """Answer correctly if the seed in the first observation ends in 0."""
    return "3" if "0)" in observation or "Once" in observation else "4"


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("will not be shown")


class AnyInfo(palestra.Env):
    """Env whose texts and `info` cannot be represented in JSON or UTF-8."""

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        seed = self.start_episode(seed)
        return f"\udc80 {seed} \ud83d", {"seed": seed}

    def step(self, action: str) -> Step:
        info: dict[str, Any] = {"success": True, "ending": "solved \ud800"}
        info["self"] = [info, {"info": info}]  # refers to itself
        wide: Any = ["x"]
        for _ in range(60):
            wide = [wide, wide]  # has 2**60 items when written out
        deep: Any = "end"
        for _ in range(5_000):
            deep = [deep]
        info |= {"wide": wide, "deep": deep, "rude": {Rude(): Rude()}, "set": {1, "a", (2, 3)}}
        info |= {"huge": 10**10_000, "nan": float("nan"), "bytes": b"\xff", "object": Step, "text": "x" * (5 << 20)}
        return Step("done \ud800", 1.0, True, False, info)

    def sample_random_action(self) -> str:
        return "answer \udfff"

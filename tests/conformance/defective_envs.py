"""A correct environment, and variants with one defect each that `check_env` must report."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from palestra import Env, Step
from palestra.core import Reset
from palestra.errors import EpisodeOver, ResetNeeded
from palestra.parsing import boxed, last_boxed, read_int


class Sound(Env):
    """Guess a digit from 0 to 9 in four turns; the reply to a wrong guess is the hint "warm" or "cold"."""

    max_turns = 4
    reward_range = (-0.1, 1.0)

    def __init__(self) -> None:
        self.over: bool | None = None

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        seed = self.start_episode(seed)
        self.hidden = self.rng.randrange(10)
        self.tried: list[int] = []
        self.turn = 0
        self.over = False
        return "Find the digit. Answer like \\boxed{3}. You have 4 turns.", {"seed": seed}

    def step(self, action: str) -> Step:
        if self.over is None:
            raise ResetNeeded("reset first")
        if self.over:
            raise EpisodeOver("over")
        self.turn += 1
        text = last_boxed(action)
        guess = None if text is None or len(text) > 20 else read_int(text)
        if guess is None:
            return self.end("no digit found", -0.1, False)
        if guess == self.hidden:
            return self.end("found", 1.0, True)
        self.tried.append(guess)
        if self.turn == 4:
            return self.end("out of turns", 0.0, False)
        return Step("warm" if abs(guess - self.hidden) < 3 else "cold", 0.0, False, False, {})

    def end(self, text: str, reward: float, success: bool) -> Step:
        self.over = True
        return Step(text, reward, True, False, {"success": success})

    def sample_random_action(self) -> str:
        return boxed(self.player_rng.randrange(10))

    def expert_action(self) -> str | None:
        return boxed(next(digit for digit in (2, 7, 4, 9, 0, 5, 1, 3, 6, 8) if digit not in self.tried))

    def example_action(self) -> str:
        return boxed(3)


class SharedGenerator(Sound):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        result = super().reset(seed, options)
        random.seed(seed)
        self.hidden = random.randrange(10)
        return result


class SharedGeneratorInStep(Sound):
    def step(self, action: str) -> Step:
        random.random()
        return super().step(action)


class NumpyGenerator(Sound):
    def step(self, action: str) -> Step:
        import numpy

        numpy.random.rand()
        return super().step(action)


class Clock(Sound):
    def step(self, action: str) -> Step:
        if time.time() < 0:
            return self.end("before time", 0.0, False)
        return super().step(action)


class Calendar(Sound):
    def step(self, action: str) -> Step:
        if datetime.now().year < 1990:
            return self.end("before time", 0.0, False)
        return super().step(action)


class Entropy(Sound):
    def step(self, action: str) -> Step:
        if random.SystemRandom().random() < 0:
            return self.end("never", 0.0, False)
        return super().step(action)


class HashSeed(Sound):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        result = super().reset(seed, options)
        self.hidden = hash(f"digit {self.hidden}") % 10
        return result


class SeedIgnored(Sound):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        result = super().reset(seed, options)
        self.hidden = 5
        return result


class SeedForgotten(Sound):
    made = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        result = super().reset(seed, options)
        SeedForgotten.made += 1
        self.hidden = SeedForgotten.made % 10
        return result


class SeedNotReported(Sound):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return super().reset(seed, options)[0], {}


class Carryover(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.games = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.games += 1
        prompt, info = super().reset(seed, options)
        return f"{prompt} Game {self.games}.", info


class ClassState(Sound):
    recent: list[int] = []  # noqa: RUF012  # the defect

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        result = super().reset(seed, options)
        ClassState.recent = [self.hidden]
        return result

    def step(self, action: str) -> Step:
        self.hidden = ClassState.recent[0]
        return super().step(action)


class PlayerSharesGenerator(Sound):
    def sample_random_action(self) -> str:
        return boxed(self.rng.randrange(10))

    def step(self, action: str) -> Step:
        step = super().step(action)
        return step._replace(observation=f"{step.observation} {self.rng.randrange(100)}")


class Crash(Sound):
    def step(self, action: str) -> Step:
        if self.over is False:
            int(last_boxed(action) or 0)
        return super().step(action)


class Hang(Sound):
    def step(self, action: str) -> Step:
        while "frac" in action:
            pass
        return super().step(action)


class Echo(Sound):
    def end(self, text: str, reward: float, success: bool) -> Step:
        return super().end(text * 100_000, reward, success)


class EmptyObservation(Sound):
    def step(self, action: str) -> Step:
        return super().step(action)._replace(observation="")


class BothFlags(Sound):
    def end(self, text: str, reward: float, success: bool) -> Step:
        return super().end(text, reward, success)._replace(truncated=True)


class FourTuple(Sound):
    def step(self, action: str) -> Step:
        return tuple(super().step(action))[:4]  # type: ignore[return-value]


class NoSuccess(Sound):
    def end(self, text: str, reward: float, success: bool) -> Step:
        return super().end(text, reward, success)._replace(info={})


class OutOfRange(Sound):
    def end(self, text: str, reward: float, success: bool) -> Step:
        return super().end(text, reward * 2, success)


class NotANumber(Sound):
    def end(self, text: str, reward: float, success: bool) -> Step:
        return super().end(text, float("nan"), success)


class ReturnAboveOne(Sound):
    def step(self, action: str) -> Step:
        step = super().step(action)
        return step if step.done else step._replace(reward=0.3)


class StepsAfterEnd(Sound):
    def step(self, action: str) -> Step:
        if self.over:
            return Step("still here", 0.0, True, False, {"success": False})
        return super().step(action)


class NeedsNoReset(Sound):
    def step(self, action: str) -> Step:
        if self.over is None:
            self.reset(seed=0)
        return super().step(action)


class OverBudget(Sound):
    max_turns = 2


class Peeking(Sound):
    def expert_action(self) -> str | None:
        return boxed(self.hidden)


class StatedPeeking(Peeking):
    expert_peeks = True


class RewardsEmptyAction(Sound):
    def step(self, action: str) -> Step:
        step = super().step(action)
        return step._replace(reward=0.5) if action == "" else step


class SharedFork(Sound):
    def fork(self) -> SharedFork:
        copy = super().fork()
        copy.rng = self.rng
        copy.tried = self.tried
        return copy

    def step(self, action: str) -> Step:
        step = super().step(action)
        return step._replace(observation=f"{step.observation} {len(self.tried)}")


class FreshFork(Sound):
    def fork(self) -> FreshFork:
        copy = super().fork()
        copy.hidden = 0
        return copy


class NoFork(Sound):
    def fork(self) -> NoFork:
        raise TypeError("cannot copy")


class Unpicklable(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.helper = lambda: None


class NoExample(Sound):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        _, info = super().reset(seed, options)
        return "Find the digit. You have 4 turns.", info


class NoBudget(Sound):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        _, info = super().reset(seed, options)
        return "Find the digit. Answer like \\boxed{3}.", info


class UnreadableExample(Sound):
    def example_action(self) -> str:
        return "Answer"

    def end(self, text: str, reward: float, success: bool) -> Step:
        step = super().end(text, reward, success)
        return step._replace(info={**step.info, "invalid": "format"}) if reward < 0 else step


class LeaksFile(Sound):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        leaked.append(Path(tempfile.mkstemp()[1]).open())  # noqa: SIM115  # the defect
        return super().reset(seed, options)


class LeaksThread(Sound):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        threading.Thread(target=stop.wait, daemon=True).start()
        return super().reset(seed, options)


leaked: list[Any] = []
stop = threading.Event()


class RewardsCopies(Sound):
    """Env whose answer is a word in the prompt, so that copying it earns the reward."""

    max_turns = 1

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        _, info = super().reset(seed, options)
        self.word = "".join(self.rng.choice("abcdefgh") for _ in range(8))
        prompt = f'The word is "{self.word}". Which word is it?'
        return f"{prompt}\n\nAnswer like \\boxed{{word}}. You have 1 attempt.", info

    def step(self, action: str) -> Step:
        if self.over is None:
            raise ResetNeeded("reset first")
        if self.over:
            raise EpisodeOver("over")
        text = last_boxed(action)
        found = text is not None and text == self.word
        return self.end("found" if found else "no", 1.0 if found else -0.1 if not text else 0.0, found)

    def sample_random_action(self) -> str:
        return boxed("".join(self.player_rng.choice("abcdefgh") for _ in range(8)))

    def expert_action(self) -> str | None:
        return boxed(self.word)

    def example_action(self) -> str:
        return boxed("word")


class SameAnswer(RewardsCopies):
    """Env whose answer is the same word in every episode."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        _, info = super().reset(seed, options)
        self.word = "fish"
        prompt = f"Number {self.rng.random()}: which word is it?"
        return f"{prompt}\n\nAnswer like \\boxed{{word}}. You have 1 attempt.", info

"""The nouns of the room: what a pool is told (Command), what it answers (Reply), and what the caller sees of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from palestra.core import Env
from palestra.errors import EnvFailed
from palestra.types import Observation

Autoreset: TypeAlias = Literal["same_step", "next_step", "disabled"]
Factory: TypeAlias = Callable[[], Env]  # picklable where it crosses a process boundary

AUTORESETS: Final = ("same_step", "next_step", "disabled")

Cause: TypeAlias = Literal[
    "raised",  # an exception
    "deadline",  # it hung
    "memory",  # it needed more than it may
    "died",  # it took its worker's process with it
    "lost",  # its worker died of another, and playing it again led elsewhere
    "node",  # its actor is gone, or the machine under it
]

# What a pool is told: (index, kind, payload). Plain tuples, since thousands of them cross pipes.
Command: TypeAlias = tuple[int, int, Any]
STEP: Final = 0  # payload: the action
RESET: Final = 1  # payload: (root seed or None, options); None begins the next episode of the same root
CALL: Final = 2  # payload: (name, args, kwargs) of a method, or of an attribute to be read
FRESH: Final = 3  # payload: (root seed, last episode, EnvFailure): report the failure, and begin the next on a new env
RESTORE: Final = 4  # payload: what EnvRunner._restore takes; no reply

# What a pool answers: (index, observation, reward, terminated, truncated, info, episode).
Reply: TypeAlias = tuple[int, Any, float, bool, bool, dict[str, Any], int]

NO_REWARD: Final = float("nan")  # of a step that failed: it cannot pass for a reward


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFailure:
    """Why a step has no outcome: something other than the agent broke."""

    index: int  # of the env in its vector
    env: str  # its id
    boundary: str  # "env", or what the error itself names: "tool", "engine" ...
    cause: Cause
    kind: str  # the exception's name
    message: str
    seed: int | None = None  # of the episode that was lost
    action: str | None = None  # that was being taken, where one was
    trace: str = ""  # where it was raised

    def error(self) -> EnvFailed:
        """As an exception, for callers that would rather raise."""
        return EnvFailed(f"env {self.index} ({self.env}) failed ({self.cause}): {self.kind}: {self.message}")


class EnvResult(NamedTuple):
    """One env's outcome. A reset is one with reward 0 and both flags down."""

    index: int  # type: ignore[assignment]  # nobody looks for a value in a EnvResult
    observation: Observation
    reward: float  # NaN where the step failed
    terminated: bool
    truncated: bool  # also where the step failed
    info: dict[str, Any]

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    @property
    def failure(self) -> EnvFailure | None:
        found: EnvFailure | None = self.info.get("failure")
        return found


class BoolList(list[bool]):
    """A list of bools that knows `|`, `&`, `~`, `any()` and `all()`, as code written for arrays expects."""

    def __or__(self, other: Iterable[bool]) -> BoolList:
        return BoolList(a or b for a, b in zip(self, other, strict=True))

    def __and__(self, other: Iterable[bool]) -> BoolList:
        return BoolList(a and b for a, b in zip(self, other, strict=True))

    def __invert__(self) -> BoolList:
        return BoolList(not flag for flag in self)

    def any(self) -> bool:
        return any(self)

    def all(self) -> bool:
        return all(self)


class VectorStep(NamedTuple):
    """One lock-step; unpacks as Gymnasium's five, a list each, in the order of the actions."""

    observations: list[Observation]
    rewards: list[float]
    terminated: BoolList
    truncated: BoolList
    infos: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one env may take. None: no limit."""

    step_timeout: float | None = None  # seconds for one step or call
    reset_timeout: float | None = None  # seconds for one reset, or for making an env
    memory: int | None = None  # bytes for one worker process
    restarts: int = 64  # workers that may be replaced; one more for every hundred results
    failures_in_a_row: int = 16  # of one env; then the vector gives up

"""Types for worker commands and replies, and for the results and failures that callers receive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from palestra.core import Env
from palestra.errors import EnvFailed
from palestra.types import Observation

Factory: TypeAlias = Callable[[], Env]  # creates one env; must be picklable if the env runs in another process

Autoreset: TypeAlias = Literal["same_step", "next_step", "disabled"]
AUTORESETS: Final = ("same_step", "next_step", "disabled")

Cause: TypeAlias = Literal[
    "raised",  # the env raised an exception
    "deadline",  # a call exceeded its timeout
    "memory",  # the worker exceeded its memory limit
    "died",  # the call terminated its worker process
    "lost",  # the worker exited because of another env, and replaying this env led to a different observation
    "node",  # the Ray actor or its node was lost
]

# A command is a tuple (env index, kind, payload). Tuples are fast to pickle, and thousands of them are sent.
Command: TypeAlias = tuple[int, int, Any]
STEP: Final = 0  # payload: action
RESET: Final = 1  # payload: (root seed, options); if the root seed is None, the next episode starts
CALL: Final = 2  # payload: (name, args, kwargs) of a method to call or an attribute to read
REPLACE: Final = 3  # report a failure and create a new env; payload: (root seed, last episode, EnvFailure)
RESTORE: Final = 4  # restore an env, then run a command; payload: (arguments of EnvRunner._restore, kind, payload)

# A reply is a tuple (env index, observation, reward, terminated, truncated, info, episode).
Reply: TypeAlias = tuple[int, Any, float, bool, bool, dict[str, Any], int]

NO_REWARD: Final = float("nan")  # reward of a failed step, which cannot be mistaken for a real reward


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFailure:
    """Infrastructure failure in one env, which explains why a call has no result."""

    index: int  # index of the env in its vector environment
    env: str  # name of the env
    boundary: str  # component that failed, such as "env", "tool" or "engine"
    cause: Cause
    kind: str  # class name of the exception
    message: str
    seed: int | None = None  # seed of the lost episode
    action: str | None = None  # action of the failed step
    trace: str = ""  # the traceback

    def error(self) -> EnvFailed:
        """Return the failure as an exception."""
        error = EnvFailed(f"env {self.index} ({self.env}) failed ({self.cause}): {self.kind}: {self.message}")
        error.boundary = self.boundary
        return error


class EnvResult(NamedTuple):
    """Result of one env's step. A reset has reward 0 and is neither terminated nor truncated."""

    index: int  # type: ignore[assignment]  # replaces the tuple.index method
    observation: Observation
    reward: float  # NaN if the step failed
    terminated: bool
    truncated: bool  # True if the episode was truncated or the step failed
    info: dict[str, Any]

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    @property
    def failure(self) -> EnvFailure | None:
        failure: EnvFailure | None = self.info.get("failure")
        return failure


class BoolList(list[bool]):
    """List of bools that supports `|`, `&`, `~`, `any()` and `all()` like a NumPy array."""

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
    """Results of one step in all envs. The fields are as in Gymnasium's `step`, but lists with one item per env."""

    observations: list[Observation]
    rewards: list[float]
    terminated: BoolList
    truncated: BoolList
    infos: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits for envs and workers; None disables a limit."""

    step_timeout: float | None = None  # maximum seconds per step or call
    reset_timeout: float | None = None  # maximum seconds per reset or construction of an env
    memory: int | None = None  # maximum memory per worker process in bytes
    restarts: int = 64  # maximum number of worker replacements; one more is allowed after every hundred results

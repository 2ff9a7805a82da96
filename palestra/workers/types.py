"""Commands and replies of a worker, and the results and failures that callers see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from palestra.core import Env
from palestra.errors import EnvFailed
from palestra.types import Observation

Factory: TypeAlias = Callable[[], Env]  # builds one env; picklable where it crosses a process boundary

Autoreset: TypeAlias = Literal["same_step", "next_step", "disabled"]
AUTORESETS: Final = ("same_step", "next_step", "disabled")

Cause: TypeAlias = Literal[
    "raised",  # the env raised an exception
    "deadline",  # a call ran past its timeout
    "memory",  # the worker exceeded its memory limit
    "died",  # the call ended its worker process
    "lost",  # the worker died because of another env, and replaying this env gave a different observation
    "node",  # the Ray actor, or the machine it ran on, is gone
]

# A command is (env index, kind, payload). Plain tuples, since thousands of them cross pipes.
Command: TypeAlias = tuple[int, int, Any]
STEP: Final = 0  # payload: the action
RESET: Final = 1  # payload: (root seed or None, options); None starts the next episode of the same root seed
CALL: Final = 2  # payload: (name, args, kwargs) of a method to call or an attribute to read
REPLACE: Final = 3  # payload: (root seed, last episode, EnvFailure): report the failure and continue with a new env
RESTORE: Final = 4  # payload: (arguments of EnvRunner._restore, kind, payload): restore the env, then run a command

# A reply is (env index, observation, reward, terminated, truncated, info, episode).
Reply: TypeAlias = tuple[int, Any, float, bool, bool, dict[str, Any], int]

NO_REWARD: Final = float("nan")  # reward of a failed step, so that it cannot be mistaken for a real one


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFailure:
    """Infrastructure failure of one env: the reason why a call has no result."""

    index: int  # of the env in its vector
    env: str  # its name
    boundary: str  # "env", or the boundary of the exception: "tool", "engine" ...
    cause: Cause
    kind: str  # class name of the exception
    message: str
    seed: int | None = None  # of the episode that was lost
    action: str | None = None  # the action of the failed step
    trace: str = ""  # the traceback

    def error(self) -> EnvFailed:
        """Return the failure as an exception."""
        error = EnvFailed(f"env {self.index} ({self.env}) failed ({self.cause}): {self.kind}: {self.message}")
        error.boundary = self.boundary
        return error


class EnvResult(NamedTuple):
    """Result of one env's step. The result of a reset has reward 0 and is neither terminated nor truncated."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which has no use here
    observation: Observation
    reward: float  # NaN if the step failed
    terminated: bool
    truncated: bool  # also set if the step failed
    info: dict[str, Any]

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    @property
    def failure(self) -> EnvFailure | None:
        failure: EnvFailure | None = self.info.get("failure")
        return failure


class BoolList(list[bool]):
    """List of bools with `|`, `&`, `~`, `any()` and `all()`, as code written for arrays expects."""

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
    """Result of a lock-step; unpacks as Gymnasium's five values, each a list in the order of the actions."""

    observations: list[Observation]
    rewards: list[float]
    terminated: BoolList
    truncated: BoolList
    infos: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of envs and workers; None disables a limit."""

    step_timeout: float | None = None  # seconds per step or call
    reset_timeout: float | None = None  # seconds per reset, and per construction of an env
    memory: int | None = None  # bytes per worker process
    restarts: int = 64  # workers that may be replaced; grows by one per hundred results

"""What a rollout leaves behind: turns, trajectories, failures. Data only; the JSON form is in `store.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palestra.types import Action, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One episode to be played."""

    env_id: str
    seed: int
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # for `make`
    options: Mapping[str, Any] = field(default_factory=dict)  # for `reset`
    group: int = 0  # tasks of one group share the seed
    member: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)  # goes into the trajectory as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something other than the agent broke."""

    boundary: str  # "env", "tool", "engine", "parsing", "agent" or "infrastructure"
    kind: str  # the exception's name
    message: str
    trace: str = ""  # where it was raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One action and what came of it."""

    observation: Observation  # what the agent saw before it acted
    action: Action
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]
    agent_seconds: float
    env_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One episode from the first observation to its end, or to the failure that cut it off."""

    env_id: str
    kwargs: Mapping[str, Any]
    seed: int  # repeats the episode's task
    group: int  # episodes of one group share the seed
    member: int  # which one of the group
    turns: tuple[Turn, ...] = field(repr=False)  # asyncio.run prints what it returns, unasked and unseen
    final_observation: Observation  # after the last action; the first one where no action was taken
    success: bool | None  # None: not played to the end
    # Where it was cut short: what the model would have been given next.
    final_prompt: tuple[int, ...] = field(default=(), repr=False)
    failure: Failure | None = None  # kept out of every loss and statistic
    attempts: int = 1  # how many times it was tried, this one included
    started: float = 0.0  # seconds since the epoch
    seconds: float = 0.0
    meta: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, *, attempt: int = 1, started: float = 0.0, failure: Failure | None = None) -> Trajectory:
        """The trajectory of `task` before its first turn."""
        return cls(
            env_id=task.env_id,
            kwargs=task.kwargs,
            seed=task.seed,
            group=task.group,
            member=task.member,
            turns=(),
            final_observation="",
            success=None,
            failure=failure,
            attempts=attempt,
            started=started,
            meta=task.meta,
        )

    @property
    def rewards(self) -> list[float]:
        return [turn.reward for turn in self.turns]

    @property
    def total_reward(self) -> float:
        return sum(turn.reward for turn in self.turns)

    @property
    def truncated(self) -> bool:
        return bool(self.turns) and self.turns[-1].truncated

    @property
    def sampled_tokens(self) -> int:
        return sum(len(call.ids) for turn in self.turns for call in turn.action.calls)

    @property
    def splits(self) -> dict[str, int]:
        """How often a prompt did not extend the one before it, by cause."""
        counts: dict[str, int] = {}
        for turn in self.turns:
            for call in turn.action.calls:
                if call.split is not None:
                    counts[call.split] = counts.get(call.split, 0) + 1
        return counts

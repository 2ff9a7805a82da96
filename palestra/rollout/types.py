"""Data types for rollouts: tasks, turns, trajectories and failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palestra.types import Action, Observation, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One episode to run."""

    env_id: str
    seed: int
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # passed to `make`
    options: Mapping[str, Any] = field(default_factory=dict)  # passed to `reset`
    group: int = 0  # tasks in a group share the seed
    member: int = 0  # index within the group
    meta: Mapping[str, Any] = field(default_factory=dict)  # copied to the trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An infrastructure error that ended an episode. It is never scored as a reward."""

    boundary: str  # "env", "tool", "engine", "parsing", "agent", "budget" or "infrastructure"
    kind: str  # name of the exception class
    message: str
    trace: str = ""  # traceback


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One action and its step's result."""

    observation: Observation  # passed to the agent before the action
    action: Action
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]
    agent_seconds: float
    env_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One episode from its first observation to its end, or to the failure that ended it."""

    env_id: str
    kwargs: Mapping[str, Any]
    seed: int  # seed that reproduces the task
    group: int  # episodes in a group share the seed
    member: int  # index within the group
    turns: tuple[Turn, ...] = field(repr=False)  # omitted from repr, because asyncio's debug output prints results
    final_observation: (
        Observation  # the observation after the last action; the first observation if there was no action
    )
    success: bool | None  # None if the episode did not end
    # For a truncated episode, the prompt for the next turn, from which a critic bootstraps.
    final_prompt: tuple[int, ...] = field(default=(), repr=False)
    failure: Failure | None = None  # failed episodes are excluded from losses and statistics
    task_id: str = ""  # fingerprint of the task, if the environment reports one
    attempts: int = 1  # number of attempts, including this one
    started: float = 0.0  # seconds since the epoch
    seconds: float = 0.0
    meta: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, *, attempt: int = 1, started: float = 0.0, failure: Failure | None = None) -> Trajectory:
        """Return a trajectory for `task` without turns."""
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

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the outcome and the conversation."""
        from html import escape

        outcome = {True: "solved", False: "not solved", None: "unfinished"}[self.success]
        if self.failure is not None:
            outcome = f"failed: {self.failure.kind} at the {self.failure.boundary}: {self.failure.message}"
        title = f"{self.env_id}, seed {self.seed}: {outcome}, return {self.total_reward:g}, {len(self.turns)} turns"
        rows = []
        for turn in self.turns:
            rows += [("environment", text_of(turn.observation)), (f"agent, {turn.reward:+g}", turn.action.text)]
        rows.append(("environment", text_of(self.final_observation)))
        cells = "".join(
            f'<tr><th>{name}</th><td style="text-align: left"><pre>{escape(text)}</pre></td></tr>'
            for name, text in rows
        )
        return f"<p>{escape(title)}</p><table>{cells}</table>"

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
        return sum([len(call.ids) for turn in self.turns for call in turn.action.calls])

    @property
    def splits(self) -> dict[str, int]:
        """Number of prompts that do not extend the previous prompt, by cause."""
        counts: dict[str, int] = {}
        for turn in self.turns:
            for call in turn.action.calls:
                if call.split is not None:
                    counts[call.split] = counts.get(call.split, 0) + 1
        return counts

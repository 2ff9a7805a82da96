"""Evaluate an agent on a suite and store every episode; an interrupted evaluation can be resumed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Any

from palestra.core import Env
from palestra.evals.agents import EvaluatedAgent
from palestra.evals.folder import SUMMARY, EvaluationRecord, plan_of, prepare_folder, read_evaluation
from palestra.evals.outcomes import EPISODES, Key, Outcome, latest, outcome, read_outcomes
from palestra.evals.suite import Suite, SuiteEntry, resolve_tasks
from palestra.evals.summary import Prices, summarise
from palestra.evals.text import cells, sections, table_text
from palestra.folders import error_record, locked
from palestra.reports import html
from palestra.reports.html import replace_file
from palestra.rollout import Progress, Task, Writer, stream
from palestra.rollout.codec import to_json
from palestra.rollout.env_provider import EnvBackend
from palestra.rollout.task_log import read_training_tasks
from palestra.wrappers import Horizon

SUMMARY_INTERVAL = 20.0  # minimum seconds between two updates of the summary


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSettings:
    """Execution settings. They do not affect results, so they may change when an evaluation is resumed."""

    concurrency: int = 32
    retries: int = 2  # maximum retries per episode after infrastructure failures
    give_up_after: int = 64  # stop after this many consecutive failures
    call_timeout: float | None = None  # maximum seconds for one reply, step or reset
    env_backend: EnvBackend = "inline"  # backend that runs the environments: inline, thread, process or ray
    env_workers: int | None = None  # number of worker processes or Ray actors
    step_timeout: float | None = None  # maximum seconds for one step; None means call_timeout
    reset_timeout: float | None = None  # maximum seconds for one reset; None means step_timeout
    prices: Prices = field(default_factory=Prices)
    progress: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of an evaluation."""

    folder: Path
    summary: Mapping[str, Any] = field(repr=False)
    outcomes: Mapping[Key, Outcome] = field(repr=False)
    played: int  # number of episodes played by this call
    stopped: str | None = None  # reason why some episodes were not started

    @property
    def left(self) -> int:
        """Number of episodes without a result: failed or not started."""
        total = self.summary["table"]["total"]
        return int(total["failed"] + total["missing"])

    @property
    def planned(self) -> int:
        return int(self.summary["table"]["total"]["planned"])

    @property
    def success(self) -> float | None:
        """Success rate, averaged over the environments."""
        rate: float | None = self.summary["table"]["total"].get("success")
        return rate

    def __str__(self) -> str:
        return table_text(self.summary["table"])

    def _repr_html_(self) -> str:
        parts = []
        for title, rows in sections(self.summary["table"]):
            head, body = cells(rows)
            parts.append(html.table([title, *head[1:]], body, named=True))
        return "".join(parts)


async def run_evaluation(
    suite: Suite,
    agent: EvaluatedAgent,
    folder: str | Path,
    *,
    settings: EvalSettings | None = None,
    overwrite: bool = False,
    command: Sequence[str] | None = None,
) -> Evaluation:
    """Play the episodes of `suite` that have no result yet and write the summary.

    Infrastructure failures are retried. All randomness depends only on the task seed and the attempt
    number, so results depend neither on the order of episodes nor on interruptions.
    """
    settings = settings or EvalSettings()
    folder = Path(folder)
    suite = resolve_tasks(suite)
    with locked(folder, activity="evaluating"):
        async with agent:
            plan = plan_of(suite, agent.describe())
            more = {"published": suite.published.to_json()} if suite.published else {}
            prepare_folder(folder, plan, sys.argv if command is None else command, overwrite=overwrite, **more)
            # The writer also removes an incomplete line left by a crash.
            with error_record(folder), Writer(folder / EPISODES) as store:
                outcomes = read_outcomes(folder)
                summary_writer = _SummaryWriter(read_evaluation(folder), outcomes, settings.prices)
                played, stopped = await _play(suite, agent, outcomes, store, settings, summary_writer)
        summary = write_summary(read_evaluation(folder), outcomes, settings.prices)
    return Evaluation(folder=folder, summary=summary, outcomes=outcomes, played=played, stopped=stopped)


async def _play(
    suite: Suite,
    agent: EvaluatedAgent,
    outcomes: dict[Key, Outcome],
    store: Writer,
    settings: EvalSettings,
    summary_writer: _SummaryWriter,
) -> tuple[int, str | None]:
    """Play every episode without a result, grouped by sampling settings."""
    left = [task for task in suite.tasks() if _missing(outcomes, task)]
    line = Progress(len(left)) if settings.progress and left else None
    played, stopped = 0, None
    try:
        for sampling, tasks in _by_sampling(suite.entries, left):
            episodes = stream(
                agent.agent(sampling),
                tasks,
                concurrency=settings.concurrency,
                retries=settings.retries,
                give_up_after=settings.give_up_after,
                call_timeout=settings.call_timeout,
                env_backend=settings.env_backend,
                env_workers=settings.env_workers,
                step_timeout=settings.step_timeout,
                reset_timeout=settings.reset_timeout,
                wrappers=horizons(suite.entries),
            )
            async with episodes:
                async for trajectory in episodes:
                    store.write(trajectory)
                    one = outcome(to_json(trajectory))
                    outcomes |= latest([one])
                    played += 1
                    summary_writer.write_if_due()
                    if line is not None:
                        line.update(trajectory)
            stopped = stopped or episodes.stopped
    finally:
        if line is not None:
            line.close()
    return played, stopped


class _SummaryWriter:
    """Writes the summary periodically during the run, using at most 5% of the run time."""

    def __init__(self, record: EvaluationRecord, outcomes: Mapping[Key, Outcome], prices: Prices) -> None:
        self._write = partial(write_summary, record, outcomes, prices)
        self._due = monotonic() + SUMMARY_INTERVAL

    def write_if_due(self) -> None:
        started = monotonic()
        if started >= self._due:
            self._write()
            self._due = monotonic() + max(SUMMARY_INTERVAL, 20 * (monotonic() - started))


def _missing(outcomes: Mapping[Key, Outcome], task: Task) -> bool:
    one = outcomes.get((task.meta["entry"], task.seed, task.member))
    return one is None or one.failed


def _by_sampling(entries: Sequence[SuiteEntry], tasks: Sequence[Task]) -> list[tuple[Mapping[str, Any], list[Task]]]:
    def way(task: Task) -> str:
        return json.dumps(dict(entries[task.meta["entry"]].sampling), sort_keys=True)

    return [(json.loads(key), list(group)) for key, group in groupby(sorted(tasks, key=way), key=way)]


def horizons(entries: Sequence[SuiteEntry]) -> list[Callable[[Env], Env]]:
    """Return the wrapper that limits episodes to their task's horizon, or an empty list if no entry has a horizon."""
    return [lambda env: Horizon(env, None)] if any(entry.turns is not None for entry in entries) else []


def training_tasks_of(agent: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the tasks that a trained agent played during training; None if its run folder is not known."""
    folder = Path(str(agent.get("folder") or agent.get("name") or ""))
    for place in (folder, folder.parent):
        tasks = read_training_tasks(place) if agent.get("kind") == "hf" else None
        if tasks is not None:
            return tasks
    return None


def write_summary(
    record: EvaluationRecord, outcomes: Mapping[Key, Outcome], prices: Prices | None = None, **more: Any
) -> dict[str, Any]:
    """Write `summary.json` from the outcomes so far."""
    summary = {
        "suite": record.suite.name,
        "agent": dict(record.agent),
        **summarise(record.suite, outcomes, prices, training_tasks_of(record.agent)),
        "versions": dict(record.saved.get("versions", {})),
        "command": list(record.saved.get("command", ())),
        **more,
    }
    replace_file(record.folder / SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())
    return summary

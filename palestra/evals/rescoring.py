"""Rescore a finished evaluation by replaying its actions or by grading its episodes with a function.

The agent is not called. If an environment now returns different observations, the stored actions were not chosen in
response to them; an episode's `meta["replay"]` records such differences.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from palestra.agents import Agent, AgentSession
from palestra.core import Env
from palestra.errors import BadValue, ContextFull, EnvFailed
from palestra.evals.folder import EvaluationRecord, plan_of, prepare_folder, read_evaluation
from palestra.evals.outcomes import EPISODES, Key, Outcome, latest, outcome, read_outcomes
from palestra.evals.run import EvalSettings, Evaluation, horizons, write_summary
from palestra.evals.suite import Suite, with_overrides
from palestra.folders import locked
from palestra.plugins import import_object
from palestra.progress import phase
from palestra.rollout import Trajectory, Writer, stream
from palestra.rollout.codec import from_json, to_json
from palestra.rollout.store import read_json
from palestra.rollout.types import Failure, Task, Turn
from palestra.seeding import child_seed
from palestra.threads import run_in_thread
from palestra.types import Action, Observation, text_of

CHUNK = 256  # number of episodes in memory at a time
SAME = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoreResult:
    """Result of `rescore`."""

    evaluation: Evaluation
    replays: Mapping[str, int]  # number of episodes per replay result
    flips: Sequence[tuple[Key, bool, bool]]  # episode key, and success before and after rescoring


async def rescore(
    source: str | Path,
    folder: str | Path,
    *,
    kwargs: Mapping[str, Any] | None = None,
    grader: str | None = None,
    settings: EvalSettings | None = None,
    overwrite: bool = False,
    command: Sequence[str] | None = None,
) -> RescoreResult:
    """Rescore the evaluation in `source` and write the result to `folder`.

    Without a `grader`, the stored actions are replayed in the current environments; `kwargs` override the environments'
    keyword arguments. A `grader` ("module:name") is called with each trajectory and returns whether it
    succeeded, a score from 0 to 1, or a mapping with "success", "score" and "reward".
    """
    settings = settings or EvalSettings()
    before, folder = read_evaluation(source), Path(folder)
    if folder.resolve() == before.folder.resolve():
        raise BadValue("rescore does not overwrite its source; choose another --out")
    if grader is not None and kwargs:
        raise BadValue("`grader` cannot be combined with environment keyword arguments, which affect only a replay")
    suite = with_overrides(before.suite, kwargs=kwargs or {})
    plan = plan_of(suite, before.agent)
    plan["rescored"] = {"from": str(before.folder), "grader": grader}
    grade = None if grader is None else _grader(grader)
    with locked(folder, activity="evaluating"):
        prepare_folder(folder, plan, sys.argv if command is None else command, overwrite=overwrite)
        with Writer(folder / EPISODES) as store, phase("grading the stored episodes") as shown:
            outcomes = read_outcomes(folder)
            played = 0
            for chunk in _chunks(before, outcomes):
                scored = (
                    await _replayed(suite, chunk, settings) if grade is None else await _graded(grade, chunk, settings)
                )
                for trajectory in scored:
                    store.write(trajectory)
                    outcomes |= latest([outcome(to_json(trajectory))])
                    played += 1
                    shown.update(played)
        record = read_evaluation(folder)
        summary = write_summary(record, outcomes, settings.prices, **_replay_notes(folder))
    evaluation = Evaluation(folder=folder, summary=summary, outcomes=outcomes, played=played)
    old = before.outcomes()
    flips = [
        (key, bool(old[key].success), bool(one.success))
        for key, one in sorted(outcomes.items())
        if key in old and not one.failed and not old[key].failed and bool(old[key].success) != bool(one.success)
    ]
    return RescoreResult(evaluation=evaluation, replays=summary["replay"]["counts"], flips=flips)


def _chunks(before: EvaluationRecord, outcomes: Mapping[Key, Outcome]) -> Iterator[list[Trajectory]]:
    """Yield chunks of the source's episodes that are not rescored yet; failed episodes are skipped."""
    path = before.folder / EPISODES

    def wanted() -> Iterator[Trajectory]:
        seen: set[Key] = set()
        for data in read_json(path):
            key = (data["meta"].get("entry", 0), data["seed"], data["member"])
            there = outcomes.get(key)
            if data["failure"] is None and key not in seen and (there is None or there.failed):
                seen.add(key)
                yield from_json(data)

    if not path.exists():
        return
    waiting = wanted()
    while chunk := list(islice(waiting, CHUNK)):
        yield chunk


# Scoring by replay


async def _replayed(suite: Suite, chunk: Sequence[Trajectory], settings: EvalSettings) -> list[Trajectory]:
    trajectories = []
    for index in sorted({t.meta.get("entry", 0) for t in chunk}):
        entry = suite.entries[index]
        stored_episodes = {(t.seed, t.member): t for t in chunk if t.meta.get("entry", 0) == index}
        tasks = [task for task in entry.tasks(index) if (task.seed, task.member) in stored_episodes]
        agent = _Replay({_agent_seed(task): stored_episodes[task.seed, task.member] for task in tasks})
        episodes = stream(
            agent,
            tasks,
            concurrency=settings.concurrency,
            retries=settings.retries,
            give_up_after=len(tasks) + 1,
            call_timeout=settings.call_timeout,
            step_timeout=settings.step_timeout,
            reset_timeout=settings.reset_timeout,
            wrappers=horizons(suite.entries),
        )
        async with episodes:
            async for trajectory in episodes:
                stored = stored_episodes[trajectory.seed, trajectory.member]
                note = agent.notes.get(child_seed(stored.seed, "agent", stored.member), SAME)
                if trajectory.failure is None and note == SAME and len(trajectory.turns) < len(stored.turns):
                    note = f"ended after {len(trajectory.turns)} of {len(stored.turns)} turns"
                trajectories.append(_timed(trajectory, stored, note))
    return sorted(trajectories, key=lambda t: (t.meta["entry"], t.group, t.member))


def _agent_seed(task: Task) -> int:
    """Return the agent seed that a rollout derives from `task`, which identifies the episode."""
    return child_seed(task.seed, "agent", task.member)


def _timed(trajectory: Trajectory, stored: Trajectory, note: str) -> Trajectory:
    """Copy the agent's original response times into the replayed trajectory."""
    turns = tuple(
        replace(turn, agent_seconds=old.agent_seconds)
        for turn, old in zip(trajectory.turns, stored.turns, strict=False)
    )
    seconds = sum(turn.agent_seconds + turn.env_seconds for turn in turns)
    return replace(trajectory, turns=turns, seconds=seconds, meta={**trajectory.meta, "replay": note})


class _Replay(Agent):
    """Agent that replays stored actions and records the first turn in which observations differ."""

    def __init__(self, episodes: Mapping[int, Trajectory]) -> None:
        self._episodes = episodes
        self.notes: dict[int, str] = {}

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        del env
        if seed is None or seed not in self._episodes:
            raise BadValue("no stored episode for this task")
        self.notes.pop(seed, None)
        return _ReplaySession(self._episodes[seed], lambda note: self.notes.setdefault(seed, note))


class _ReplaySession(AgentSession):
    def __init__(self, stored: Trajectory, note: Callable[[str], object]) -> None:
        self._stored = stored
        self._note = note
        self._turn = 0

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        del info
        turns = self._stored.turns
        if self._turn == len(turns):
            if self._stored.truncated:  # the episode was truncated, for example because the context window was full
                raise ContextFull("the stored episode was truncated at this turn")
            self._note("unfinished")
            raise EnvFailed(f"the episode did not end after its {len(turns)} stored actions")
        turn = turns[self._turn]
        if turn.info.get("ending") == "context" and not turn.action.text and not turn.action.calls:
            raise ContextFull(str(turn.info.get("detail", "")))  # the first prompt did not fit into the context
        if text_of(observation) != text_of(turn.observation):
            self._note(f"observations differ from turn {self._turn + 1}")
        self._turn += 1
        return turn.action


# Scoring by a function

Grade = Callable[[Trajectory], Any]


def _grader(name: str) -> Grade:
    grade = import_object(name)
    if not callable(grade):
        raise BadValue(f"{name} must be a function of a trajectory, got {type(grade).__name__}")
    function: Grade = grade
    return function


async def _graded(grade: Grade, chunk: Sequence[Trajectory], settings: EvalSettings) -> list[Trajectory]:
    gate = asyncio.Semaphore(settings.concurrency)

    async def one(trajectory: Trajectory) -> Trajectory:
        async with gate:
            try:
                result = await run_in_thread(grade, trajectory)
                if inspect.isawaitable(result):
                    result = await result
                return _with_grade(trajectory, result)
            except (Exception, SystemExit) as err:  # noqa: BLE001  # an exception in the grader is a failure, not a score of 0
                failure = Failure(boundary="grader", kind=type(err).__name__, message=str(err)[:2000])
                return replace(trajectory, success=None, failure=failure)

    return list(await asyncio.gather(*(one(trajectory) for trajectory in chunk)))


def _with_grade(trajectory: Trajectory, result: Any) -> Trajectory:
    """Return the trajectory with the grader's result in its last turn."""
    if isinstance(result, bool):
        result = {"success": result}
    elif isinstance(result, (int, float)):
        result = {"success": result >= 1, "score": float(result)}
    if not isinstance(result, Mapping) or not set(result) <= {"success", "score", "reward"} or "success" not in result:
        raise BadValue(
            f'a grader must return a bool, a number, or a mapping with "success", "score" and "reward"; got {result!r}'
        )
    success = bool(result["success"])
    if not trajectory.turns:
        return replace(trajectory, success=success)
    last = trajectory.turns[-1]
    score = float(result.get("score", success))
    reward = float(result.get("reward", score))
    info = {**last.info, "success": success, "score": score}
    earlier: tuple[Turn, ...] = trajectory.turns[:-1]
    if "reward" in result:
        reward -= sum(turn.reward for turn in earlier)  # the grader's reward replaces the total return
    return replace(trajectory, success=success, turns=(*earlier, replace(last, reward=reward, info=info)))


def _replay_notes(folder: Path) -> dict[str, Any]:
    """Return the replay counts and all episodes whose replay differed."""
    counts: Counter[str] = Counter()
    listed = []
    for data in read_json(folder / EPISODES):
        note = data["meta"].get("replay", "graded")
        word = note if note in (SAME, "graded", "unfinished") else note.partition(" ")[0]
        counts[{"observations": "observations differ", "ended": "ended early"}.get(word, word)] += 1
        if note not in (SAME, "graded"):
            listed.append({"env": data["env_id"], "seed": data["seed"], "member": data["member"], "replay": note})
    return {"replay": {"counts": dict(sorted(counts.items())), "episodes": listed}}


def as_json(result: RescoreResult) -> dict[str, Any]:
    """Return the result as JSON-compatible data."""
    return {
        **result.evaluation.summary,
        "flips": [
            {"entry": key[0], "seed": key[1], "member": key[2], "before": before, "now": now}
            for key, before, now in result.flips
        ],
    }

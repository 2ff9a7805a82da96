"""Run many episodes and collect their trajectories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Unpack

from palestra.agents.base import Agent
from palestra.rollout.heap import frozen_heap
from palestra.rollout.metrics import compute_metrics
from palestra.rollout.progress import Progress
from palestra.rollout.stream import EnvSource, RolloutOptions, Stream
from palestra.rollout.types import Task, Trajectory


@dataclass(slots=True, kw_only=True)
class RolloutResult:
    """Outcome of `collect`: each episode is in `trajectories`, in `failures`, or counted in `unstarted`."""

    trajectories: list[Trajectory] = field(default_factory=list, repr=False)  # finished, sorted by group and member
    # Episodes that ended with a `failure`; excluded from all statistics.
    failures: list[Trajectory] = field(default_factory=list, repr=False)
    unstarted: int = 0
    stopped: str | None = None  # reason why some episodes were not started (a budget or too many consecutive failures)
    metrics: dict[str, Any] = field(default_factory=dict)


async def collect(
    agent: Agent,
    env: EnvSource,
    *,
    progress: bool = False,
    on_trajectory: Callable[[Trajectory], object] | None = None,
    **options: Unpack[RolloutOptions],
) -> RolloutResult:
    """Run `episodes` of `env` (a name, a function that returns an env, or a list of tasks), `concurrency` at a time.

    Episodes in a group (`group_size`) share a seed; all seeds are derived from `seed`. A failed episode is retried in a
    new env up to `retries` times; after `give_up_after` consecutive failures no more episodes start. `on_trajectory` is
    called with every episode as soon as it ends, including failed ones; pass `Writer.write` to store them.

    `env_backend="process"` runs the envs in `env_workers` worker processes: CPU-bound envs do not block this process,
    and if an env crashes or hangs (see `step_timeout`), only its episode fails and is retried. The same seeds yield the
    same episodes on every backend. See `RolloutOptions` for all options.
    """
    with frozen_heap():  # includes the preparation of the tasks and the metrics
        return await _collect(Stream(agent, env, options), progress, on_trajectory)


async def _collect(
    stream: Stream, progress: bool, on_trajectory: Callable[[Trajectory], object] | None
) -> RolloutResult:
    result = RolloutResult()
    started = perf_counter()
    display = Progress(len(stream.tasks)) if progress else None
    try:
        async with stream:
            async for trajectory in stream:
                (result.trajectories if trajectory.failure is None else result.failures).append(trajectory)
                if on_trajectory is not None:
                    on_trajectory(trajectory)
                if display is not None:
                    display.update(trajectory)
    finally:
        if display is not None:
            display.close()
    result.unstarted = len(stream.tasks) - len(result.trajectories) - len(result.failures)
    return _finish(result, stream, started)


async def collect_groups(
    agent: Agent, tasks: list[Task], *, groups: int, **options: Unpack[RolloutOptions]
) -> RolloutResult:
    """Run `tasks` until all episodes in `groups` groups have ended; cancel the others, and drop incomplete groups.

    The result contains the groups that were complete first, so it favors short episodes and depends on timing.
    """
    sizes = Counter(task.group for task in tasks)
    ended: dict[int, list[Trajectory]] = {}
    complete: list[int] = []
    started = perf_counter()
    stream = Stream(agent, tasks, options)
    async with stream:
        async for trajectory in stream:
            members = ended.setdefault(trajectory.group, [])
            members.append(trajectory)
            if len(members) == sizes[trajectory.group]:
                complete.append(trajectory.group)
            if len(complete) == groups:
                break
    result = RolloutResult()
    for trajectory in (trajectory for group in complete for trajectory in ended[group]):
        (result.trajectories if trajectory.failure is None else result.failures).append(trajectory)
    return _finish(result, stream, started)


def _finish(result: RolloutResult, stream: Stream, started: float) -> RolloutResult:
    for trajectories in (result.trajectories, result.failures):
        trajectories.sort(key=lambda t: (t.group, t.member))
    result.stopped = stream.stopped
    result.metrics = compute_metrics(result.trajectories, result.failures, perf_counter() - started)
    return result

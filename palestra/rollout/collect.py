"""Play many episodes and account for every one of them exactly once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Unpack

from palestra.agents.base import Agent
from palestra.rollout.metrics import summarise
from palestra.rollout.progress import Progress
from palestra.rollout.stream import EnvSource, Options, Stream
from palestra.rollout.types import Trajectory


@dataclass(slots=True, kw_only=True)
class Result:
    """What came of a collection: every episode is in `trajectories`, in `failures`, or was never started."""

    trajectories: list[Trajectory] = field(default_factory=list, repr=False)  # played to the end, by group and member
    # Each with its `failure`; kept out of every statistic.
    failures: list[Trajectory] = field(default_factory=list, repr=False)
    unstarted: int = 0
    stopped: str | None = None  # why not all were started: a budget, or too many failures in a row
    metrics: dict[str, Any] = field(default_factory=dict)


async def collect(
    agent: Agent,
    env: EnvSource,
    *,
    progress: bool = False,
    on_trajectory: Callable[[Trajectory], object] | None = None,
    **options: Unpack[Options],
) -> Result:
    """Play `episodes` of `env` (an id, what makes an env, or a list of tasks) with `agent`, `concurrency` at a time.

    Groups of `group_size` share a seed; all seeds follow from `seed`. A failed episode is tried again on a fresh env up
    to `retries` times; after `give_up_after` failures in a row no more are started. `on_trajectory` sees each episode,
    failed ones too, as soon as it is over (a store's `write`, say).
    """
    result = Result()
    began = perf_counter()
    stream = Stream(agent, env, options)
    line = Progress(len(stream.tasks)) if progress else None
    try:
        async with stream:
            async for trajectory in stream:
                (result.trajectories if trajectory.failure is None else result.failures).append(trajectory)
                if on_trajectory is not None:
                    on_trajectory(trajectory)
                if line is not None:
                    line.update(trajectory)
    finally:
        if line is not None:
            line.close()
    for found in (result.trajectories, result.failures):
        found.sort(key=lambda t: (t.group, t.member))
    result.unstarted = len(stream.tasks) - len(result.trajectories) - len(result.failures)
    result.stopped = stream.stopped
    result.metrics = summarise(result.trajectories, result.failures, perf_counter() - began)
    return result

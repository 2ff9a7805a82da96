"""Asynchronous RL: collection goes on while the learner updates, and nobody waits for the slowest episode.

A step learns from the first groups that are whole, those begun first before others; an episode that takes long is
learned from in a later step. It is waited for only where its first token would be more than `staleness` steps old. So
this bound is strict, and every episode is learned from once, however long it took. Beside what a step learns from
`concurrency` episodes are under way or wait, and never more than `staleness` steps can take in time.

What is sampled from is a copy of the weights. It changes between steps, in one go, and conversations under way are then
read anew: what older weights made of their beginning would mislead the new ones. So a conversation may have been
sampled by several versions; each token's own log-probability was kept, and the loss corrects for the difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from time import perf_counter
from typing import Any

from palestra.errors import EngineFailed
from palestra.rollout import Result, Task, stream
from palestra.rollout.metrics import summarise
from palestra.rollout.stream import Stream
from palestra.rollout.types import Trajectory
from palestra.train.by_env import by_env
from palestra.train.config import TrainConfig
from palestra.train.loop import Loop
from palestra.train.run import Run, figures
from palestra.train.tasks import training_tasks

Group = tuple[int, int]  # the step whose tasks it is of, its number among them


class AsyncLoop(Loop):
    """Like `Loop`, with rollout and learning at the same time."""

    lockstep = False  # nobody waits for anybody
    shared = False

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self._stream: Stream
        self._moved = asyncio.Condition()
        self._wanted = config.episodes // config.group_size  # groups a step learns from
        others = min(-(-config.concurrency // config.group_size), config.staleness * self._wanted)
        self._room = self._wanted + others  # groups begun and not learned from
        self._in_room = 0
        self._open: dict[Group, int] = {}  # in the order they were begun, with the weights' version then
        self._over: dict[Group, list[Trajectory]] = {}  # their episodes so far
        self._whole: list[Group] = []

    async def run(self) -> Run:
        self._clock = perf_counter()
        options = {"concurrency": self.config.concurrency, "retries": self.config.retries}
        async with stream(self.agent(), self._tasks(), wrappers=self.wrappers, **options) as self._stream:  # type: ignore[arg-type]
            return await super().run()

    async def iteration(self, step: int) -> dict[str, Any]:
        """Wait for a batch, learn from it while the next ones are played."""
        began = perf_counter()
        result = await self._batch()
        waited = perf_counter()
        self.learner.publishes = False
        try:
            learned = await asyncio.to_thread(
                self.learner.learn, result.trajectories, step, version=self.engine.version
            )
        finally:
            self.learner.publishes = True
        async with self.engine.paused():
            self.learner.policy.publish()
            self.engine.weights_changed()
        async with self._moved:
            self._in_room -= self._wanted
            self._moved.notify_all()
        done = perf_counter()
        self.curriculum = self.curriculum.after(result.trajectories)
        self.store(step, result)
        return {
            **self.described(step),
            **figures(result),
            **(by_env(result.trajectories) if len(self.config.envs) > 1 else {}),
            **learned,
            "seconds_waiting": waited - began,
            "seconds_learning": done - waited,
        }

    async def _tasks(self) -> AsyncIterator[Task]:
        """Task after task, waiting where the learner is too far behind."""
        for step in count(self.step):
            for task in training_tasks(self.config, step, self.curriculum):
                group = step, task.group
                if group not in self._over:
                    async with self._moved:
                        await self._moved.wait_for(lambda: self._in_room < self._room)
                    self._in_room += 1
                    self._open[group] = self.engine.version
                    self._over[group] = []
                yield task

    async def _batch(self) -> Result:
        """As many whole groups as a step learns from, among them all that may not become older."""
        oldest = self.engine.version - self.config.staleness
        while len(self._whole) < self._wanted or next(iter(self._open.values()), oldest + 1) <= oldest:
            trajectory = await anext(aiter(self._stream), None)
            if trajectory is None or self._stream.stopped is not None:
                raise EngineFailed(f"the rollout broke off: {self._stream.stopped or 'no more episodes came'}")
            self._put_aside(trajectory)
        self._whole.sort()
        result = Result()
        for group in self._whole[: self._wanted]:
            for trajectory in sorted(self._over.pop(group), key=lambda t: t.member):
                (result.trajectories if trajectory.failure is None else result.failures).append(trajectory)
        del self._whole[: self._wanted]
        if not result.trajectories:
            raise EngineFailed("no episode of the step was finished")
        now = perf_counter()
        result.metrics = summarise(result.trajectories, result.failures, now - self._clock)
        self._clock = now
        return result

    def _put_aside(self, trajectory: Trajectory) -> None:
        group = trajectory.meta["step"], trajectory.group
        self._over[group].append(trajectory)
        if len(self._over[group]) == self.config.group_size:
            self._whole.append(group)
            del self._open[group]

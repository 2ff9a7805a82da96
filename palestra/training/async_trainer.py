"""Asynchronous RL: collection goes on while the learner updates, and nobody waits for the slowest episode.

A step learns from the first groups that are whole, those begun first before others; an episode that takes long is
learned from in a later step. It is waited for only where its first token would be more than `staleness` steps old (see
`waiting.py`). So this bound is strict, and every episode is learned from once, however long it took. Beside what a step
learns from, `concurrency` episodes are under way or wait.

What is sampled from is a copy of the weights. It changes between steps, in one go, and conversations under way are then
read anew: what older weights made of their beginning would mislead the new ones. So a conversation may have been
sampled by several versions; each token's own log-probability was kept, and the loss corrects for the difference.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from math import ceil
from time import perf_counter
from typing import Any

from palestra.errors import EngineFailed
from palestra.rollout import RolloutResult, Task, stream
from palestra.rollout.metrics import compute_metrics
from palestra.rollout.stream import Stream
from palestra.training.by_env import by_env
from palestra.training.config import TrainConfig
from palestra.training.staleness_buffer import WaitingRoom
from palestra.training.sync_trainer import Loop
from palestra.training.tasks import training_tasks
from palestra.training.trainer import Run, figures


class AsyncLoop(Loop):
    """Like `Loop`, with rollout and learning at the same time."""

    lockstep = False  # nobody waits for anybody
    shared = False

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self._stream: Stream
        self._moved = asyncio.Condition()
        self._room = WaitingRoom(
            wanted=config.episodes // config.group_size,
            group_size=config.group_size,
            others=ceil(config.concurrency / config.group_size),
            staleness=config.staleness,
        )

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
            await self.engine.publish(None, self.engine.version + 1)
        async with self._moved:
            self._room.left()
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
                if not self._room.knows(group):
                    async with self._moved:
                        await self._moved.wait_for(lambda: not self._room.full)
                    self._room.begin(group, self.engine.version)
                yield task

    async def _batch(self) -> RolloutResult:
        """As many whole groups as a step learns from, among them all that may not become older."""
        while not self._room.ready(self.engine.version):
            trajectory = await anext(aiter(self._stream), None)
            if trajectory is None or self._stream.stopped is not None:
                raise EngineFailed(f"the rollout broke off: {self._stream.stopped or 'no more episodes came'}")
            self._room.put((trajectory.meta["step"], trajectory.group), trajectory)
        result = RolloutResult()
        for trajectory in self._room.take():
            (result.trajectories if trajectory.failure is None else result.failures).append(trajectory)
        if not result.trajectories:
            raise EngineFailed("no episode of the step was finished")
        now = perf_counter()
        result.metrics = compute_metrics(result.trajectories, result.failures, now - self._clock)
        self._clock = now
        return result

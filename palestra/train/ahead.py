"""Asynchronous RL: collection goes on while the learner updates; how far it may run ahead is bounded.

Episodes of step s + `staleness` may be begun while those of step s are waited for or learned from. So no token is
learned from more than `staleness` updates of the weights after it was sampled, and a slow episode has that many steps'
time before anybody waits for it.

What is sampled from is a copy of the weights. It changes between steps, in one go, and conversations under way are then
read anew: what older weights made of their beginning would mislead the new ones. So a conversation may have been
sampled by several versions; each token's own log-probability was kept, and the loss corrects for the difference.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from itertools import count
from time import perf_counter
from typing import Any

from palestra.errors import EngineFailed
from palestra.rollout import Result, Task, stream
from palestra.rollout.metrics import summarise
from palestra.rollout.stream import Stream
from palestra.rollout.types import Trajectory
from palestra.train.config import TrainConfig
from palestra.train.loop import Loop
from palestra.train.run import Run, figures
from palestra.train.tasks import training_tasks


class AsyncLoop(Loop):
    """Like `Loop`, with rollout and learning at the same time."""

    lockstep = False  # nobody waits for anybody
    shared = False

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self._stream: Stream
        self._moved = asyncio.Condition()
        self._over: dict[int, list[Trajectory]] = defaultdict(list)  # by step, until they are learned from

    async def run(self) -> Run:
        self._clock = perf_counter()
        options = {"concurrency": self.config.concurrency, "retries": self.config.retries}
        async with stream(self.agent(), self._tasks(), wrappers=self.wrappers, **options) as self._stream:  # type: ignore[arg-type]
            return await super().run()

    async def iteration(self, step: int) -> dict[str, Any]:
        """Wait for a batch, learn from it while the next ones are played."""
        began = perf_counter()
        async with self._moved:
            self._moved.notify_all()
        result = await self._batch(step)
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
        done = perf_counter()
        self.curriculum = self.curriculum.after(result.trajectories)
        self.store(step, result)
        return {
            **self.described(step),
            **figures(result),
            **learned,
            "seconds_waiting": waited - began,
            "seconds_learning": done - waited,
        }

    async def _tasks(self) -> AsyncIterator[Task]:
        """Task after task, waiting where the learner is too far behind."""
        for step in count(self.step):
            async with self._moved:
                await self._moved.wait_for(lambda step=step: step <= self.step + self.config.staleness)  # type: ignore[misc]
            for task in training_tasks(self.config, step, self.curriculum):
                yield task

    async def _batch(self, step: int) -> Result:
        """The episodes of `step`, as soon as the last of them is over; those of later steps are put aside."""
        while len(self._over[step]) < self.config.episodes:
            trajectory = await anext(aiter(self._stream), None)
            if trajectory is None or self._stream.stopped is not None:
                raise EngineFailed(f"the rollout broke off: {self._stream.stopped or 'no more episodes came'}")
            self._over[trajectory.meta["step"]].append(trajectory)
        result = Result()
        for trajectory in sorted(self._over.pop(step), key=lambda t: (t.group, t.member)):
            (result.trajectories if trajectory.failure is None else result.failures).append(trajectory)
        if not result.trajectories:
            raise EngineFailed("no episode of the step was finished")
        now = perf_counter()
        result.metrics = summarise(result.trajectories, result.failures, now - self._clock)
        self._clock = now
        return result

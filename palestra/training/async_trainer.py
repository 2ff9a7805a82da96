"""Asynchronous RL: episodes are collected while the learner updates, so no step waits for the slowest episode.

A step trains on the groups that are complete, in the order in which they started; a slow episode is used in a later
step. The trainer waits for an episode only if its first token would otherwise become more than `staleness` steps old
(`staleness_buffer.py`). The bound on staleness is therefore strict, and every episode is used exactly once, even if the
run is resumed (`used_groups.py`).

The engine samples from its own copy of the weights, which is updated between steps. Conversations in progress are then
prefilled again with the new weights, so several versions of the weights may sample one conversation. The log-prob of
each token under the version that sampled it is stored, and importance weights in the loss correct for the difference.

With several processes, each one plays its own groups, and continues to sample while it waits for the others during an
update. The bound on staleness holds in every process, because all processes perform the same steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from math import ceil
from time import perf_counter
from typing import Any

from palestra.engines.local.devices import use_device
from palestra.errors import BadValue, EngineFailed
from palestra.progress import phase
from palestra.rollout import RolloutResult, Task, stream
from palestra.rollout.metrics import compute_metrics
from palestra.rollout.stream import Stream
from palestra.rollout.types import Trajectory
from palestra.training.config import TrainConfig
from palestra.training.distributed import DistributedContext, connect
from palestra.training.failures import check_finished
from palestra.training.group_sampling import varied_groups
from palestra.training.rollout_metrics import metrics_by_env, rollout_metrics
from palestra.training.run import TrainingRun
from palestra.training.staleness_buffer import StalenessBuffer
from palestra.training.step import reinforcement_step
from palestra.training.sync_trainer import SyncTrainer
from palestra.training.tasks import training_tasks
from palestra.training.throughput import throughput_metrics, used_gpu_memory
from palestra.training.used_groups import UsedGroups


class AsyncTrainer(SyncTrainer):
    """RL trainer that collects episodes and updates the weights concurrently."""

    lockstep = False
    _used_state: Mapping[str, Any] | None = None

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        sampling = config.sampling
        groups, processes = sampling.episodes // sampling.group_size, connect(config.run.device).size
        if groups < processes:
            raise BadValue(
                f"asynchronous training with {processes} processes needs at least as many groups per step; this run "
                f"has {groups}. Raise --episodes to at least {processes * sampling.group_size}"
            )
        super().__init__(config, **options)
        self._stream: Stream
        self._released = asyncio.Condition()
        self._groups = frozenset(self.distributed.shard(range(groups)))  # the groups that this process plays
        self._buffer = StalenessBuffer(
            groups_per_step=len(self._groups),
            group_size=sampling.group_size,
            extra_groups=ceil(sampling.concurrency / sampling.group_size),
            staleness=sampling.staleness,
        )
        self._used = UsedGroups(self._groups, step=self.step)
        if self._used_state is not None:
            self._used.load(self._used_state)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "used_groups": self._used.state(self.distributed)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._used_state = state.get("used_groups")  # a synchronous run uses all groups of a step

    async def run(self) -> TrainingRun:
        self._batch_started = perf_counter()
        async with (
            self.player.processes(),
            stream(self.player.agent(), self._tasks(), **self.player.rollout_options) as self._stream,
        ):
            return await super().run()

    async def prepare(self) -> None:
        await super().prepare()
        self._stream.agent = self.player.agent()  # uses the reply length from the warm start

    async def iteration(self, step: int) -> dict[str, Any]:
        """Wait for a batch and train on it while further episodes are played."""
        started = perf_counter()
        with phase("waiting for episodes"):
            result, trajectories, groups = await self._next_batch()
        received = perf_counter()
        learn = partial(
            reinforcement_step,
            self.learner,
            trajectories,
            step,
            version=self.engine.version,
            teacher_logprobs=await self.teacher_logprobs(trajectories),
        )
        device = self.learner.policy.device
        # A canceled run waits until the updates have ended.
        with ThreadPoolExecutor(1, "palestra-learner", use_device, (device,)) as thread, phase("learning"):
            learned = await asyncio.get_running_loop().run_in_executor(thread, learn)
        learned |= await self.publish()
        async with self._released:
            self._buffer.release()
            self._buffer.adapt(waiting=received - started, learning=perf_counter() - received)
            self._released.notify_all()
        finished = perf_counter()
        memory = [used_gpu_memory(device)]
        self.store(step, result)
        result = await self.gather(result)
        self.curriculum = self.curriculum.after(result.trajectories)
        return {
            **self.step_settings(step),
            **rollout_metrics(result),
            **self.log_tasks(step, result),
            **(metrics_by_env(result.trajectories) if len(self.config.env.weights) > 1 else {}),
            **learned,
            **dict(zip(groups, self.distributed.sum(list(groups.values())), strict=True)),
            **throughput_metrics(trajectories, learned.get("updates", 0), finished - received, memory),
            "seconds_waiting": received - started,
            "seconds_learning": finished - received,
        }

    async def _tasks(self) -> AsyncIterator[Task]:
        """Yield an endless sequence of this process's tasks, waiting while the buffer is full."""
        for step in count(self._used.first):
            for task in training_tasks(self.config, step, self.curriculum):
                group = step, task.group
                if task.group not in self._groups or group in self._used:
                    continue
                if not self._buffer.contains(group):
                    async with self._released:
                        await self._released.wait_for(lambda: not self._buffer.full)
                    self._buffer.start(group, self.engine.version)
                yield task

    async def _next_batch(self) -> tuple[RolloutResult, list[Trajectory], dict[str, float]]:
        """Wait for the next step's groups, including every group that has reached the maximum staleness.

        Returns the step's episodes, the trajectories to train on, and dynamic sampling metrics.
        """
        sampling = self.config.sampling
        target = len(self._groups)
        discarded: list[Trajectory] = []
        while not self._buffer.ready(self.engine.version):
            trajectory = await anext(aiter(self._stream), None)
            if trajectory is None or self._stream.stopped is not None:
                raise EngineFailed(f"the rollout stopped early: {self._stream.stopped or 'no episodes are left'}")
            group = trajectory.meta["step"], trajectory.group
            self._buffer.put(group, trajectory)
            members = self._buffer.complete(group)
            below_limit = len(discarded) < sampling.dynamic_sampling * target * sampling.group_size
            if members is not None and below_limit and not self._varied_returns(members):
                self._buffer.discard(group)
                self._used.add(group)
                discarded += members
                async with self._released:
                    self._released.notify_all()
        result = RolloutResult()
        taken = self._buffer.take()
        for group in {(trajectory.meta["step"], trajectory.group) for trajectory in taken}:
            self._used.add(group)
        for trajectory in taken:
            (result.trajectories if trajectory.failure is None else result.failures).append(trajectory)
        trained = self.rewarded(result.trajectories)
        for trajectory in discarded:
            (result.trajectories if trajectory.failure is None else result.failures).append(trajectory)
        check_finished(result, "the model")
        now = perf_counter()
        result.metrics = compute_metrics(result.trajectories, result.failures, now - self._batch_started)
        self._batch_started = now
        groups: dict[str, float] = {}
        if sampling.dynamic_sampling:
            groups["groups_played"] = target + len(discarded) / sampling.group_size
            groups["groups_kept"] = float(len(_varied(trained)))
        return result, trained, groups

    def _varied_returns(self, members: list[Trajectory]) -> bool:
        """Return whether the returns of a complete group differ."""
        return bool(_varied(self.rewarded([t for t in members if t.failure is None])))


def _varied(trajectories: Sequence[Trajectory]) -> set[Hashable]:
    """Return the groups whose returns differ. All episodes of a group are in this process."""
    return varied_groups(trajectories, DistributedContext())

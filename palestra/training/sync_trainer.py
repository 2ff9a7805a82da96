"""Synchronous RL: play a step's episodes, train on them, repeat."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from palestra.training.config import TrainConfig
from palestra.training.distributed import gather_result
from palestra.training.step import reinforcement_step
from palestra.training.tasks import Curriculum, training_tasks
from palestra.training.trainer import Trainer, metrics_by_env, rollout_metrics
from palestra.training.warm_start import warm_start


class SyncTrainer(Trainer):
    """On-policy RL trainer that alternates between playing episodes and updating the weights."""

    distributed_support = True

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        self.curriculum = Curriculum.of(config)
        super().__init__(config, **options)

    async def prepare(self) -> None:
        """Warm-start an untrained model on episodes by a scripted player."""
        await warm_start(self.learner, self.config, self.log, **self.env_options)
        await self.publish()

    async def iteration(self, step: int) -> dict[str, Any]:
        """Play a step's tasks and train on the trajectories."""
        started = perf_counter()
        result = await self.play(training_tasks(self.config, step, self.curriculum))
        sampled = perf_counter()
        async with self.engine.paused():
            learned = reinforcement_step(self.learner, result.trajectories, step, version=self.engine.version)
            await self.publish()
        finished = perf_counter()
        self.store(step, result)
        result = gather_result(result, self.distributed)
        self.curriculum = self.curriculum.after(result.trajectories)
        return {
            **self.step_settings(step),
            **rollout_metrics(result),
            **self.log_tasks(step, result),
            **(metrics_by_env(result.trajectories) if len(self.config.env.weights) > 1 else {}),
            **learned,
            "seconds_sampling": sampled - started,
            "seconds_learning": finished - sampled,
        }

    def step_settings(self, step: int) -> dict[str, Any]:
        """Return a step's horizon and, if there is a curriculum, its level."""
        settings: dict[str, Any] = {"horizon": self.config.env.schedule.at(step)}
        return {**settings, "level": self.curriculum.open} if self.config.env.curriculum else settings

    def state(self) -> dict[str, Any]:
        return {"curriculum": self.curriculum.state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.curriculum = self.curriculum.resumed(state["curriculum"])

"""Train an agent by RL: sample, credit, learn; one iteration on one screen. Keeping the run is `run.py`'s."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from palestra.training.by_env import by_env
from palestra.training.config import TrainConfig
from palestra.training.gather import pooled
from palestra.training.horizon import HorizonSchedule
from palestra.training.tasks import Curriculum, training_tasks
from palestra.training.trainer import Run as Run
from palestra.training.trainer import Say, Training, Watch, figures
from palestra.training.warmstart import warm_start


def train(config: TrainConfig, *, resume: bool = True, say: Say = lambda _: None, watch: Watch | None = None) -> Run:
    """Run `config` to its last step; where its folder has a checkpoint of the same config, go on from there.

    `say` is told what happens, a line each; with `watch`, which sees the rows of metrics, only what is not in them.
    """
    return asyncio.run(kind_of(config)(config, resume=resume, say=say, watch=watch).run())


def kind_of(config: TrainConfig) -> type[Training]:
    """What runs a config; the kinds other than plain RL are loaded when asked for."""
    if config.algo == "sft":
        from palestra.training.offline import SFT

        return SFT
    if config.algo == "dpo":
        from palestra.training.offline import DPO

        return DPO
    if config.algo == "agentevol":
        from palestra.training.evolve import Evolve

        return Evolve
    if config.asynchronous:
        from palestra.training.async_trainer import AsyncLoop

        return AsyncLoop
    return Loop


class Loop(Training):
    """On-policy RL: the model plays, every turn gets its credit, the model learns, and again."""

    shared = True

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        self.curriculum = Curriculum.of(config)
        super().__init__(config, **options)

    async def prepare(self) -> None:
        """Give an untrained model something to improve."""
        await warm_start(self.learner, self.config, self.say)
        await self.engine.publish(None, self.engine.version + 1)

    async def iteration(self, step: int) -> dict[str, Any]:
        """Sample, learn."""
        began = perf_counter()
        result = await self.play(training_tasks(self.config, step, self.curriculum))
        sampled = perf_counter()
        async with self.engine.paused():
            learned = self.learner.learn(result.trajectories, step, version=self.engine.version)
            await self.engine.publish(None, self.engine.version + 1)
        done = perf_counter()
        self.store(step, result)
        result = pooled(result, self.world)
        self.curriculum = self.curriculum.after(result.trajectories)
        return {
            **self.described(step),
            **figures(result),
            **(by_env(result.trajectories) if len(self.config.envs) > 1 else {}),
            **learned,
            "seconds_sampling": sampled - began,
            "seconds_learning": done - sampled,
        }

    def described(self, step: int) -> dict[str, Any]:
        """What a step was given."""
        found: dict[str, Any] = {"horizon": HorizonSchedule.parse(self.config.horizon).at(step)}
        return {**found, "level": self.curriculum.open} if self.config.curriculum else found

    def state(self) -> dict[str, Any]:
        return {"curriculum": self.curriculum.state()}

    def resumed(self, state: Mapping[str, Any]) -> None:
        self.curriculum = self.curriculum.resumed(state["curriculum"])

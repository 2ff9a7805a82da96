"""AgentEvol: alternate between exploration and return-weighted behavior cloning of the successful episodes.

The model is first trained on a base set (`data`, or the warm start) by behavior cloning. Each round plays new tasks and
trains on the successful episodes together with the base set. Training starts either from the weights before the first
round (as in ReST^EM, so that a round does not inherit the previous one's errors) or from the current weights. One step
in the run is one round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from palestra.algorithms.agentevol import AgentEvol, Weighted
from palestra.algorithms.sft import turn_weights
from palestra.errors import BadValue
from palestra.rollout import read
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training import data
from palestra.training.config import TrainConfig
from palestra.training.learner import learning_rate
from palestra.training.offline import tokenize
from palestra.training.rollout_metrics import metrics_by_env, rollout_metrics
from palestra.training.run import TrainingRun
from palestra.training.run_start import damaged_start
from palestra.training.step import cloning_step, score_at_temperature_one
from palestra.training.tasks import Curriculum, training_tasks
from palestra.training.trainer import Trainer
from palestra.training.warm_start import warm_start

START = "start.pt"  # weights that every round starts from


class EvolutionTrainer(Trainer):
    """Trainer that alternates between exploration and behavior cloning."""

    distributed_support = True

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        if not isinstance(config.algorithm, AgentEvol):
            raise BadValue(f"EvolutionTrainer runs AgentEvol, got {config.algorithm.name}")
        self.algorithm = config.algorithm
        self.curriculum = Curriculum.of(config)
        self.base: list[Trajectory] = []
        self._saved_digest: str | None = None
        self._start: list[Tensor] | None = None  # weights at the start of every round; None: the current weights
        if self.algorithm.config.data:
            self.base = self.algorithm.select(data.load(self.algorithm.config.data).trajectories)
        super().__init__(config, **options)

    async def run(self) -> TrainingRun:
        score_at_temperature_one(self.learner)
        self.base = [t for t in await tokenize(self, self.base) if t is not None]
        data.check_unchanged(self._saved_digest, self.base, self.config)
        return await super().run()

    async def prepare(self) -> None:
        """Train on the base set or, without one, on a scripted player's episodes."""
        if not self.base:
            longest = await warm_start(
                self.learner,
                self.config,
                self.log,
                on_epoch=self.evaluate_epoch,
                model=self.published_agent,
                **self.player.env_options,
            )
            self.set_reply_length(longest)
        else:
            learned = await self._clone([Weighted(trajectory=t, weight=1.0) for t in self.base], "base")
            self.log(f"cloned the base set: {len(self.base)} trajectories, loss {learned['loss']:.3f}")
        if self.algorithm.config.clone_into == "start":
            self._save_start_weights()
        await self.publish()

    async def iteration(self, step: int) -> dict[str, Any]:
        """Run one round: play episodes, select the successful ones and train on them."""
        config = self.config
        started = perf_counter()
        result = await self.play(training_tasks(config, step, self.curriculum))
        self.store(step, result)
        sampled = perf_counter()
        played = [t for shard in self.distributed.gather(result.trajectories) for t in shard]
        chosen = self.algorithm.training_set(self.base, [*self._earlier_successes(step), *played])
        explored = chosen[len(self.base) :]
        gathered = await self.gather(result)
        learned: dict[str, float] = {"signal": 0.0}
        if any(item.weight > 0 for item in explored):
            async with self.engine.paused():
                await self.engine.release_memory()
                self._start_round()
                learned = await self._clone([item for item in chosen if item.weight > 0], step)
                await self.publish()
        row = {
            **({"level": self.curriculum.open} if config.env.curriculum else {}),
            **rollout_metrics(gathered),
            **self.log_tasks(step, gathered),
            **(metrics_by_env(gathered.trajectories) if len(config.env.weights) > 1 else {}),
            "successes": len(explored),
            "examples": sum(item.weight > 0 for item in chosen),
            **learned,
            "seconds_sampling": sampled - started,
            "seconds_learning": perf_counter() - sampled,
        }
        self.curriculum = self.curriculum.after(played)
        return row

    def state(self) -> dict[str, Any]:
        return {"curriculum": self.curriculum.state(), "data": data.digest(self.base)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.curriculum = self.curriculum.resumed(state["curriculum"])
        self._saved_digest = state["data"]
        if self.algorithm.config.clone_into == "start":
            path = self.folder / START
            try:
                self._start = torch.load(path, map_location="cpu", weights_only=True)
            except Exception as err:  # torch raises many types for damaged files
                raise damaged_start(path, f"{type(err).__name__}: {err}") from err

    def _earlier_successes(self, step: int) -> list[Trajectory]:
        """Load the successful episodes from earlier rounds that all processes stored."""
        rounds = self.algorithm.config.rounds
        first = max(0, step + 1 - rounds) if rounds else 0
        folder = self.folder / "trajectories"
        files = [file for i in range(first, step) for file in sorted(folder.glob(f"step-{i:06d}.*"))]
        return [t for file in files for t in read(file) if t.failure is None and t.success]

    def _start_round(self) -> None:
        """Load the weights that the round starts from."""
        optimizer = self.learner.optimizer
        if self._start is None:
            optimizer.reset_state()
        else:
            optimizer.restore(self._start)

    def _save_start_weights(self) -> None:
        """Save the initial weights for later rounds and for a resumed run."""
        self._start = self.learner.optimizer.snapshot()
        if self.distributed.is_main:
            part = self.folder / f".{START}.part"
            torch.save(self._start, part)
            part.replace(self.folder / START)

    async def _clone(self, chosen: Sequence[Weighted], label: int | str) -> dict[str, float]:
        """Train on a set for `epochs` passes with one learning-rate schedule; return the mean of the metrics."""
        config, options = self.config, self.algorithm.config
        steps = data.updates_per_pass(len(chosen), options.batch) * config.optimizer.epochs
        seed = child_seed(config.run.seed, "round", label)
        updates: list[dict[str, float]] = []
        for i in range(steps):
            part = [chosen[j] for j in data.batch_at(i, count=len(chosen), batch=options.batch, seed=seed)]
            trajectories = [item.trajectory for item in part]
            weights = turn_weights(trajectories, [item.weight for item in part], skip_invalid=options.skip_invalid)
            update = cloning_step(self.learner, trajectories, weights, learning_rate(config, i, steps=steps))
            if "loss" in update:
                updates.append(update)
            await asyncio.sleep(0)  # lets Ctrl-C end the run here
        means = {name: sum(update[name] for update in updates) / len(updates) for name in updates[0]} if updates else {}
        return {"signal": float(bool(updates)), "updates": len(updates), "lr": config.optimizer.lr, **means}

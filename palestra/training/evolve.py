"""AgentEvol: explore with the model as it is, keep what succeeded, clone that weighted by its return, repeat.

The model first clones a base set (`data`, or a player's transcripts as before RL). A round plays fresh tasks; its
successes, the base set beside them, are cloned into the model of the start (as ReST^EM does, so that no round inherits
the habits of the one before) or into the current one. Steps of the run are rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from palestra.algorithms.agentevol import Weighted, next_set
from palestra.algorithms.sft import turn_weights
from palestra.rollout import read
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training import data
from palestra.training.by_env import by_env
from palestra.training.config import TrainConfig
from palestra.training.gather import pooled
from palestra.training.learner import learning_rate
from palestra.training.offline import with_ids
from palestra.training.supervised import as_written, clone
from palestra.training.tasks import Curriculum, training_tasks
from palestra.training.trainer import Run, Training, figures
from palestra.training.warmstart import warm_start

START = "start.pt"


class Evolve(Training):
    """Rounds of exploring and cloning."""

    shared = True

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        self.curriculum = Curriculum.of(config)
        self.base: list[Trajectory] = []
        self._began_with: str | None = None
        self._start: list[Tensor] | None = None  # the weights every round begins with; None: the current ones
        if config.data:
            self.base = data.to_clone(data.load(config.data), keep=config.data_keep)
        super().__init__(config, **options)

    async def run(self) -> Run:
        as_written(self.learner)
        self.base = [t for t in await with_ids(self, self.base) if t is not None]
        data.check_same(self._began_with, self.base, self.config)
        return await super().run()

    async def prepare(self) -> None:
        """The agent that explores first has cloned the base set."""
        if not self.base:
            await warm_start(self.learner, self.config, self.say)
        else:
            learned = self._clone([Weighted(trajectory=t, weight=1.0) for t in self.base], "base")
            self.say(f"cloned the base set: {len(self.base)} trajectories, loss {learned['loss']:.3f}")
        if self.config.evolve_from == "start":
            self._keep_start_weights()
        await self.engine.publish(None, self.engine.version + 1)

    async def iteration(self, step: int) -> dict[str, Any]:
        """Explore, filter, clone."""
        config = self.config
        began = perf_counter()
        result = await self.play(training_tasks(config, step, self.curriculum))
        self.store(step, result)
        sampled = perf_counter()
        played = [t for share in self.world.gather(result.trajectories) for t in share]
        explored = [*self._earlier(step), *played]
        chosen = next_set(
            self.base,
            explored,
            weighting=config.evolve_weight,  # type: ignore[arg-type]  # checked by the config
            base_weight=config.evolve_base,
        )
        kept = len(chosen) - len(self.base)
        everyone = pooled(result, self.world)
        learned: dict[str, float] = {"signal": 0.0}
        if any(item.weight > 0 for item in chosen[len(self.base) :]):
            async with self.engine.paused():
                self._begin_round()
                learned = self._clone([item for item in chosen if item.weight > 0], step)
                await self.engine.publish(None, self.engine.version + 1)
        row = {
            **({"level": self.curriculum.open} if config.curriculum else {}),
            **figures(everyone),
            **(by_env(everyone.trajectories) if len(config.envs) > 1 else {}),
            "kept": kept,
            "examples": sum(item.weight > 0 for item in chosen),
            **learned,
            "seconds_sampling": sampled - began,
            "seconds_learning": perf_counter() - sampled,
        }
        self.curriculum = self.curriculum.after(played)
        return row

    def state(self) -> dict[str, Any]:
        return {"curriculum": self.curriculum.state(), "data": data.digest(self.base)}

    def resumed(self, state: Mapping[str, Any]) -> None:
        self.curriculum = self.curriculum.resumed(state["curriculum"])
        self._began_with = state["data"]
        if self.config.evolve_from == "start":
            self._start = torch.load(self.folder / START, map_location="cpu", weights_only=True)

    def _earlier(self, step: int) -> list[Trajectory]:
        """The episodes of the rounds before that are cloned in this one too; they lie in the run's folder."""
        rounds = self.config.evolve_rounds
        first = max(0, step + 1 - rounds) if rounds else 0
        kept = self.folder / "trajectories"
        files = [
            file for at in range(first, step) for file in sorted(kept.glob(f"step-{at:06d}.*"))
        ]  # of every process
        return [t for file in files for t in read(file) if t.failure is None and t.success]

    def _begin_round(self) -> None:
        """The weights a round clones into."""
        optimiser = self.learner.optimiser
        if self._start is None:
            optimiser.forget()
        else:
            optimiser.restore(self._start)

    def _keep_start_weights(self) -> None:
        """Exactly, for every later round and for going on after a kill."""
        self._start = self.learner.optimiser.snapshot()
        if self.world.first:
            part = self.folder / f".{START}.part"
            torch.save(self._start, part)
            part.replace(self.folder / START)

    def _clone(self, chosen: Sequence[Weighted], label: int | str) -> dict[str, float]:
        """`epochs` passes over a set, the learning rate going up and down within them; means over the updates."""
        config = self.config
        updates = data.updates_a_pass(len(chosen), config.batch)
        schedule = config.changed(steps=updates * config.epochs)
        seed = child_seed(config.seed, "round", label)
        found: list[dict[str, float]] = []
        for i in range(schedule.steps):
            part = [chosen[at] for at in data.batch_at(i, count=len(chosen), batch=config.batch, seed=seed)]
            trajectories = [item.trajectory for item in part]
            weights = turn_weights(trajectories, [item.weight for item in part], skip_invalid=config.skip_invalid)
            done = clone(self.learner, trajectories, weights, learning_rate(schedule, i))
            if "loss" in done:
                found.append(done)
        means = {name: sum(item[name] for item in found) / len(found) for name in found[0]} if found else {}
        return {"signal": float(bool(found)), "updates": len(found), "lr": config.lr, **means}

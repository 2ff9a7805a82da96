"""A step -> the episodes to be played in it: which environments, which seeds, how many turns at most.

Everything is a pure function of the config, the step and, with a curriculum, the level reached; so a resumed run plays
what an uninterrupted one would have played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Self

from palestra.errors import BadValue
from palestra.rollout import Task
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training.config import TrainConfig
from palestra.training.horizon import HorizonSchedule

MEMORY = 0.7  # of a level's running success rate, a step
LOOKING_BACK = 0.2  # share of episodes on levels that were passed, so that they are not unlearned


@dataclass(frozen=True, slots=True, kw_only=True)
class Curriculum:
    """Levels from easy to hard: the next one opens where the success rate on the last open one is high enough."""

    levels: tuple[str, ...]
    threshold: float  # 0: no curriculum, all levels are open
    open: int = 1  # how many levels are
    rate: float | None = None  # running success rate on the hardest open one

    @classmethod
    def of(cls, config: TrainConfig) -> Self:
        ids = tuple(config.envs)
        if config.curriculum and len(ids) < 2:
            raise BadValue("a curriculum needs levels: name several --env, the easiest first")
        return cls(levels=ids, threshold=config.curriculum, open=1 if config.curriculum else len(ids))

    def after(self, trajectories: Sequence[Trajectory]) -> Curriculum:
        """What is open after a step's episodes."""
        mine = [bool(t.success) for t in trajectories if t.env_id == self.levels[self.open - 1]]
        if not self.threshold or self.open == len(self.levels) or not mine:
            return self
        now = sum(mine) / len(mine)
        rate = now if self.rate is None else MEMORY * self.rate + (1 - MEMORY) * now
        if rate < self.threshold:
            return _with(self, open=self.open, rate=rate)
        return _with(self, open=self.open + 1, rate=None)

    def weights(self, given: Mapping[str, float]) -> dict[str, float]:
        """How often each open environment is drawn."""
        if not self.threshold or self.open == 1:
            return {env_id: given[env_id] for env_id in self.levels[: self.open]}
        passed = self.levels[: self.open - 1]
        back = {env_id: LOOKING_BACK / len(passed) for env_id in passed}
        return {**back, self.levels[self.open - 1]: 1 - LOOKING_BACK}

    def state(self) -> dict[str, Any]:
        return {"open": self.open, "rate": self.rate}

    def resumed(self, state: Mapping[str, Any]) -> Curriculum:
        return _with(self, open=state["open"], rate=state["rate"])


def _with(curriculum: Curriculum, *, open: int, rate: float | None) -> Curriculum:  # noqa: A002
    return Curriculum(levels=curriculum.levels, threshold=curriculum.threshold, open=open, rate=rate)


def training_tasks(config: TrainConfig, step: int, curriculum: Curriculum) -> list[Task]:
    """A step's episodes: groups share a seed, environments are drawn by weight, the horizon is the step's.

    Seeds are consecutive from step to step, so that an environment over the rows of a data set shows each row once an
    epoch. (Where several environments are mixed, each misses the seeds that others got.)
    """
    weights = curriculum.weights(config.envs)
    ids = list(weights)
    horizon = HorizonSchedule.parse(config.horizon).at(step)
    rng = Random(child_seed(config.seed, "envs", step))
    groups = config.episodes // config.group_size
    first = child_seed(config.seed, "train") + step * groups
    return [
        Task(
            env_id=env_id,
            kwargs=config.env_keywords,
            seed=first + group,
            options={} if horizon is None else {"horizon": horizon},
            group=group,
            member=member,
            meta={"step": step},
        )
        for group in range(groups)
        for env_id in (ids[0] if len(ids) == 1 else rng.choices(ids, list(weights.values()))[0],)
        for member in range(config.group_size)
    ]


def held_out_tasks(config: TrainConfig) -> list[Task]:
    """The episodes of every evaluation, spread evenly over the environments; no horizon."""
    ids = config.eval_envs
    keywords = config.eval_env_keywords
    first = child_seed(config.eval_seed, "eval")
    return [
        Task(env_id=ids[i % len(ids)], kwargs=keywords, seed=first + i // len(ids), group=i)
        for i in range(config.eval_episodes if ids else 0)
    ]

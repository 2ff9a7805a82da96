"""Choose the episodes for a training step: environments, seeds and horizon.

Everything is a pure function of the config, the step and the curriculum level, so a resumed run plays the same
episodes as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Self

from palestra.errors import BadValue
from palestra.registry import with_split
from palestra.rollout import Task
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training.config import TrainConfig

SMOOTHING = 0.7  # decay of the running success rate per step
REVIEW_FRACTION = 0.2  # fraction of episodes on mastered levels, which prevents forgetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Curriculum:
    """Curriculum over environments from easy to hard.

    The next level opens when the success rate on the hardest open level reaches `threshold`.
    """

    levels: tuple[str, ...]
    threshold: float  # 0 disables the curriculum, so all levels are open
    open: int = 1  # number of open levels
    rate: float | None = None  # running success rate on the hardest open level

    @classmethod
    def of(cls, config: TrainConfig) -> Self:
        names = tuple(config.env.weights)
        threshold = config.env.curriculum
        if threshold and len(names) < 2:
            raise BadValue("a curriculum requires several environments; pass --env several times, easiest first")
        return cls(levels=names, threshold=threshold, open=1 if threshold else len(names))

    def after(self, trajectories: Sequence[Trajectory]) -> Curriculum:
        """Return the curriculum updated with a step's episodes."""
        hardest = [bool(t.success) for t in trajectories if t.env_id == self.levels[self.open - 1]]
        if not self.threshold or self.open == len(self.levels) or not hardest:
            return self
        success = sum(hardest) / len(hardest)
        rate = success if self.rate is None else SMOOTHING * self.rate + (1 - SMOOTHING) * success
        if rate < self.threshold:
            return replace(self, rate=rate)
        return replace(self, open=self.open + 1, rate=None)

    def weights(self, given: Mapping[str, float]) -> dict[str, float]:
        """Return the sampling weight of each open environment."""
        if not self.threshold or self.open == 1:
            return {name: given[name] for name in self.levels[: self.open]}
        mastered = self.levels[: self.open - 1]
        review = {name: REVIEW_FRACTION / len(mastered) for name in mastered}
        return {**review, self.levels[self.open - 1]: 1 - REVIEW_FRACTION}

    def state(self) -> dict[str, Any]:
        return {"open": self.open, "rate": self.rate}

    def resumed(self, state: Mapping[str, Any]) -> Curriculum:
        return replace(self, open=state["open"], rate=state["rate"])


def training_tasks(
    config: TrainConfig,
    step: int,
    curriculum: Curriculum,
    *,
    groups: int | None = None,
    played: int = 0,
    extra: int = 0,
) -> list[Task]:
    """Return a step's tasks: all episodes in a group share a seed, and environments are sampled by weight.

    Seeds are consecutive across steps, so an environment based on a dataset uses each row once per epoch. (If several
    environments are mixed, each environment skips the seeds that the others use.) `groups` is the number of groups, by
    default as configured; `played` is the number of groups already played in this step, and `extra` the number of
    groups that earlier steps played in addition to those configured.
    """
    weights = curriculum.weights(config.env.weights)
    names = list(weights)
    horizon = config.env.schedule.at(step)
    rng = Random(child_seed(config.run.seed, "envs", step, *([played] if played else [])))
    size = config.sampling.group_size
    per_step = config.sampling.episodes // size
    first = child_seed(config.run.seed, "train") + step * per_step + extra
    return [
        Task(
            env_id=name,
            kwargs=with_split(name, config.env.kwargs, "train"),
            seed=first + group,
            options={} if horizon is None else {"horizon": horizon},
            group=group,
            member=member,
            meta={"step": step},
        )
        for group in range(played, played + (per_step if groups is None else groups))
        for name in (names[0] if len(names) == 1 else rng.choices(names, list(weights.values()))[0],)
        for member in range(size)
    ]


def has_held_out_tasks(config: TrainConfig) -> bool:
    """Return whether every evaluation environment holds tasks out or is not one of the training environments."""
    return all(
        name not in config.env.weights or "split" in with_split(name, config.eval_kwargs, "test")
        for name in config.eval_envs
    )


def held_out_tasks(config: TrainConfig, *, final: bool = False) -> list[Task]:
    """Return an evaluation's fixed tasks, without a horizon and evenly distributed over the environments.

    They come from the "test" split if the environment has splits. The `final` evaluation uses other seeds, because the
    repeated evaluations decide when to stop and which model is the best.
    """
    names = config.eval_envs
    first = child_seed(config.eval.seed, "final" if final else "eval")
    kwargs = {name: with_split(name, config.eval_kwargs, "test") for name in names}
    return [
        Task(env_id=names[i % len(names)], kwargs=kwargs[names[i % len(names)]], seed=first + i // len(names), group=i)
        for i in range(config.eval.episodes if names else 0)
    ]

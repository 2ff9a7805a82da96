"""Preferences: scored trajectories -> pairs of a better and a worse one of the same task."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from palestra.errors import BadValue
from palestra.rollout.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two ways to play one task."""

    chosen: Trajectory
    rejected: Trajectory
    margin: float  # by how much the chosen one scored higher


def total_reward(trajectory: Trajectory) -> float:
    return trajectory.total_reward


def has_tokens(trajectory: Trajectory) -> bool:
    return trajectory.sampled_tokens > 0


def make_pairs(
    trajectories: Sequence[Trajectory],
    *,
    margin: float = 1e-6,
    per_task: int | None = 1,
    score: Callable[[Trajectory], float] = total_reward,
    usable: Callable[[Trajectory], bool] = has_tokens,
) -> list[Pair]:
    """Pairs that differ by `margin` or more, the widest `per_task` of each task (None: all of them).

    A task is an environment with its keywords and a seed. Failed episodes, and those that are not `usable` (by default
    those without a sampled token), are left out. No chance is involved: tasks come in the order they first appear,
    pairs of a task by falling margin; among equals the lower (group, member) goes first.
    """
    if not margin > 0:
        raise BadValue(f"margin is above 0, got {margin}: without a difference there is nothing to prefer")
    if per_task is not None and per_task < 1:
        raise BadValue(f"per_task is 1 or more, or None for every pair, got {per_task}")
    tasks: dict[Hashable, list[tuple[float, Trajectory]]] = {}
    for trajectory in trajectories:
        if trajectory.failure is None and usable(trajectory):
            tasks.setdefault(task_of(trajectory), []).append((score(trajectory), trajectory))
    found: list[Pair] = []
    for scored in tasks.values():
        scored.sort(key=lambda entry: (entry[1].group, entry[1].member))
        pairs = [
            Pair(chosen=better, rejected=worse, margin=high - low)
            for high, better in scored
            for low, worse in scored
            if high - low >= margin
        ]
        pairs.sort(key=lambda pair: -pair.margin)  # stable, so ties keep the order above
        found.extend(pairs[:per_task])
    return found


def task_of(trajectory: Trajectory) -> Hashable:
    """What two trajectories share if they began alike."""
    return trajectory.env_id, trajectory.seed, json.dumps(trajectory.kwargs, sort_keys=True, default=repr)

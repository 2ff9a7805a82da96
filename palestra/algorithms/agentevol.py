"""AgentEvol: explored trajectories -> the weighted set to clone next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from palestra.algorithms.dpo import task_of
from palestra.errors import BadValue
from palestra.rollout.types import Trajectory

Weighting = Literal["return", "equal", "task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """A trajectory to clone, and how much it counts."""

    trajectory: Trajectory
    weight: float


def successes(trajectories: Sequence[Trajectory], *, per_task: int | None = None) -> list[Trajectory]:
    """Those that did what was asked; of several that played a task with the same words the first.

    `per_task` keeps the first so many of a task, so that easy ones do not crowd out the rest.
    """
    if per_task is not None and per_task < 1:
        raise BadValue(f"per_task is 1 or more, or None for all, got {per_task}")
    seen: set[Hashable] = set()
    kept: Counter[Hashable] = Counter()
    found = []
    for trajectory in trajectories:
        task = task_of(trajectory)
        words = task, tuple(turn.action.text for turn in trajectory.turns)
        wanted = trajectory.failure is None and trajectory.success and words not in seen
        if wanted and (per_task is None or kept[task] < per_task):
            seen.add(words)
            kept[task] += 1
            found.append(trajectory)
    return found


def next_set(
    base: Sequence[Trajectory],
    explored: Sequence[Trajectory],
    *,
    weighting: Weighting = "return",
    base_weight: float = 1.0,
    per_task: int | None = None,
) -> list[Weighted]:
    """D = base + successes(explored), to clone with J = sum_D w log p.

    The base set is in every round, which keeps the policy from drifting into its own habits. Explored trajectories
    weigh their return ("return", as published: success is worth 1 and shaping counts), 1 ("equal"), or 1 over how many
    of their task are kept ("task"). `sft.turn_weights` takes the weights to the turns.
    """
    if weighting not in ("return", "equal", "task"):
        raise BadValue(f"weighting is 'return', 'equal' or 'task', got {weighting!r}")
    if not base_weight >= 0:
        raise BadValue(f"base_weight is 0 or more, got {base_weight}")
    good = successes(explored, per_task=per_task)
    sizes = Counter(task_of(trajectory) for trajectory in good)

    def weight(trajectory: Trajectory) -> float:
        if weighting == "return":
            return max(trajectory.total_reward, 0.0)  # cloning with a negative weight would be unlearning a success
        return 1.0 if weighting == "equal" else 1.0 / sizes[task_of(trajectory)]

    sound = [trajectory for trajectory in base if trajectory.failure is None]
    return [
        *(Weighted(trajectory=trajectory, weight=base_weight) for trajectory in sound),
        *(Weighted(trajectory=trajectory, weight=weight(trajectory)) for trajectory in good),
    ]

"""AgentEvol: alternate between exploration and return-weighted behavior cloning of successful trajectories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from palestra.algorithms.base import Algorithm, AlgorithmConfig, TrainerKind
from palestra.algorithms.dpo import task_key
from palestra.algorithms.options import option
from palestra.algorithms.sft import CLONING_DEFAULTS, CloningConfig
from palestra.errors import BadValue
from palestra.rollout.types import Trajectory

Weighting = Literal["return", "equal", "task"]


@dataclass(frozen=True, kw_only=True)
class AgentEvolConfig(CloningConfig):
    """Options for AgentEvol. `data` is an optional base set of trajectories that every round trains on."""

    clone_into: Literal["start", "current"] = option(
        "start",
        "Model from which each round starts training: 'start' is the model before the first round, "
        "'current' is the latest model.",
        flag="evolve_from",
        choices=("start", "current"),
    )
    weighting: Weighting = option(
        "return",
        "Weight of a successful trajectory in the loss: 'return' uses its return, 'equal' uses 1, and 'task' uses 1 "
        "divided by the number of successes on its task.",
        flag="evolve_weight",
        choices=("return", "equal", "task"),
    )
    base_weight: float = option(
        1.0,
        "Weight of each --data trajectory in the loss; 0 excludes these trajectories.",
        flag="evolve_base",
        at_least=0,
    )
    rounds: int = option(
        1,
        "Number of most recent rounds whose successes are trained on; 0 uses all rounds so far.",
        flag="evolve_rounds",
        at_least=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """A trajectory to train on and its weight."""

    trajectory: Trajectory
    weight: float


class AgentEvol(Algorithm[AgentEvolConfig]):
    """Explore with the current policy, then maximize J = sum w log p over its successful trajectories."""

    name: ClassVar[str] = "agentevol"
    config_class: ClassVar[type[AlgorithmConfig]] = AgentEvolConfig
    trainer: ClassVar[TrainerKind] = "evolution"
    # The default group_size is 1: since duplicates are removed, several episodes per task would favor lucky successes
    # over reliable ones.
    defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 5,
        "epochs": 2,
        "episodes": 512,
        "group_size": 1,
        "eval_every": 1,
        "save_every": 1,
        **CLONING_DEFAULTS,
    }

    def select(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the base set of stored trajectories."""
        return self.config.select(trajectories)

    def training_set(self, base: Sequence[Trajectory], explored: Sequence[Trajectory]) -> list[Weighted]:
        """Return the weighted trajectories to train on in this round, starting with the base set."""
        return next_set(base, explored, weighting=self.config.weighting, base_weight=self.config.base_weight)


def successes(trajectories: Sequence[Trajectory], *, per_task: int | None = None) -> list[Trajectory]:
    """Return the successful trajectories; drop those that repeat an earlier trajectory's actions in the same task.

    `per_task` limits the number per task, so that easy tasks do not dominate.
    """
    if per_task is not None and per_task < 1:
        raise BadValue(f"per_task must be at least 1, or None for all, got {per_task}")
    seen: set[Hashable] = set()
    counts: Counter[Hashable] = Counter()
    selected = []
    for trajectory in trajectories:
        task = task_key(trajectory)
        actions = task, tuple(turn.action.text for turn in trajectory.turns)
        new = trajectory.failure is None and trajectory.success and actions not in seen
        if new and (per_task is None or counts[task] < per_task):
            seen.add(actions)
            counts[task] += 1
            selected.append(trajectory)
    return selected


def next_set(
    base: Sequence[Trajectory],
    explored: Sequence[Trajectory],
    *,
    weighting: Weighting = "return",
    base_weight: float = 1.0,
    per_task: int | None = None,
) -> list[Weighted]:
    """Return the base set followed by the successes in `explored`, each with its weight.

    The base set is part of every round, which keeps the policy from drifting. The weight of an explored trajectory is
    its return ("return", as published), 1 ("equal"), or 1 divided by the number of successes in its task ("task").
    """
    if weighting not in ("return", "equal", "task"):
        raise BadValue(f"weighting must be one of return, equal, task; got {weighting!r}")
    if not base_weight >= 0:
        raise BadValue(f"base_weight must be at least 0, got {base_weight}")
    selected = successes(explored, per_task=per_task)
    sizes = Counter(task_key(trajectory) for trajectory in selected)

    def weight(trajectory: Trajectory) -> float:
        if weighting == "return":
            return max(trajectory.total_reward, 0.0)  # a negative weight would reduce the probability of a success
        return 1.0 if weighting == "equal" else 1.0 / sizes[task_key(trajectory)]

    finished = [trajectory for trajectory in base if trajectory.failure is None]
    return [
        *(Weighted(trajectory=trajectory, weight=base_weight) for trajectory in finished),
        *(Weighted(trajectory=trajectory, weight=weight(trajectory)) for trajectory in selected),
    ]

"""DPO (Direct Preference Optimization) on pairs of trajectories from the same task."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from palestra.algorithms.base import Algorithm, AlgorithmConfig, TrainerKind
from palestra.algorithms.options import option
from palestra.algorithms.sft import CLONING_DEFAULTS, DataConfig
from palestra.errors import BadValue
from palestra.rollout.types import Trajectory

if TYPE_CHECKING:
    from torch import Tensor

    from palestra.algorithms.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class DPOConfig(DataConfig):
    """Options for DPO."""

    beta: float = option(
        0.1,
        "DPO beta, the strength of the KL constraint to the reference model; higher values keep the model "
        "closer to it.",
        flag="dpo_beta",
        above=0,
    )
    margin: float = option(
        1e-6,
        "Minimum difference in return between the two trajectories of a preference pair.",
        flag="dpo_margin",
        above=0,
    )
    pairs: int = option(
        1,
        "Maximum number of preference pairs per task, starting with the largest difference in return; "
        "0 uses all pairs.",
        flag="dpo_pairs",
        at_least=0,
    )
    smoothing: float = option(
        0.0,
        "Label smoothing: the assumed fraction of pairs whose preference label is wrong.",
        flag="dpo_smoothing",
        at_least=0,
        below=0.5,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two trajectories from one task, one preferred over the other."""

    chosen: Trajectory
    rejected: Trajectory
    margin: float  # difference between their scores


class DPO(Algorithm[DPOConfig]):
    """L = -log sigma(beta h);  h = log(p_chosen / ref_chosen) - log(p_rejected / ref_rejected), averaged over pairs."""

    name: ClassVar[str] = "dpo"
    config_class: ClassVar[type[AlgorithmConfig]] = DPOConfig
    trainer: ClassVar[TrainerKind] = "preference"
    needs_env: ClassVar[bool] = False
    needs_data: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {"steps": 0, "epochs": 1, **CLONING_DEFAULTS}

    @property
    def needs_reference(self) -> bool:
        return True

    def select(self, trajectories: Sequence[Trajectory]) -> list[Pair]:
        """Return the preference pairs in stored trajectories; raise BadValue if there are none."""
        margin, per_task = self.config.margin, self.config.pairs or None
        pairs = make_pairs(trajectories, margin=margin, per_task=per_task, usable=lambda t: bool(t.turns))
        if not pairs:
            tasks = len({task_key(t) for t in trajectories})
            raise BadValue(
                f"no preference pairs: of {len(trajectories)} trajectories for {tasks} tasks, no two for the same task "
                f"differ in return by at least {margin:g}. Collect several episodes per seed (--group-size 2 or more, "
                "or two agents on the same seeds), or lower --dpo-margin"
            )
        return pairs

    def loss(self, chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor) -> LossOutput:
        """Return the loss on a batch of pairs, given the log-probabilities of whole trajectories, [P] each."""
        from palestra.algorithms.losses import dpo_loss

        config = self.config
        return dpo_loss(
            chosen,
            rejected,
            ref_chosen,
            ref_rejected,
            pairs=len(chosen),
            beta=config.beta,
            smoothing=config.smoothing,
        )


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
    """Return up to `per_task` pairs per task: those with the largest differences in score, all at least `margin`.

    A task is an environment with its keyword arguments and a seed. Failed episodes and those that are not `usable` (by
    default, those without a sampled token) are excluded. The result is deterministic: tasks are in order of first
    appearance, the pairs of a task by decreasing margin, and ties in the order of (group, member).
    """
    if not margin > 0:
        raise BadValue(f"margin must be greater than 0, because equal scores express no preference; got {margin}")
    if per_task is not None and per_task < 1:
        raise BadValue(f"per_task must be at least 1, or None for every pair, got {per_task}")
    tasks: dict[Hashable, list[tuple[float, Trajectory]]] = {}
    for trajectory in trajectories:
        if trajectory.failure is None and usable(trajectory):
            tasks.setdefault(task_key(trajectory), []).append((score(trajectory), trajectory))
    selected: list[Pair] = []
    for scored in tasks.values():
        scored.sort(key=lambda entry: (entry[1].group, entry[1].member))
        pairs = [
            Pair(chosen=better, rejected=worse, margin=high - low)
            for high, better in scored
            for low, worse in scored
            if high - low >= margin
        ]
        pairs.sort(key=lambda pair: -pair.margin)  # stable sort: ties keep their order
        selected.extend(pairs[:per_task])
    return selected


def task_key(trajectory: Trajectory) -> Hashable:
    """Return the key that trajectories from the same task share."""
    return trajectory.env_id, trajectory.seed, json.dumps(trajectory.kwargs, sort_keys=True, default=repr)

"""SFT (supervised fine-tuning): train on the actions in stored trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from palestra.algorithms.base import Algorithm, AlgorithmConfig, TrainerKind
from palestra.algorithms.options import option
from palestra.errors import BadValue
from palestra.rollout.types import Trajectory

Keep = Literal["success", "all"]

# Defaults for training on trajectories; a pair contains the values for an untrained and a trained model.
CLONING_DEFAULTS: Mapping[str, Any] = {"optimizer": "adamw", "minibatches": 1, "lr": (1e-3, 1e-5)}


@dataclass(frozen=True, kw_only=True)
class DataConfig(AlgorithmConfig):
    """Options for algorithms that read stored trajectories."""

    data: tuple[str, ...] = option(
        (),
        "Stored trajectories to train on: a file, a folder, the folder of a run or a quoted glob pattern; repeatable.",
    )
    batch: int = option(32, "Number of trajectories (for dpo, preference pairs) per update.", at_least=1)


@dataclass(frozen=True, kw_only=True)
class CloningConfig(DataConfig):
    """Options for algorithms that train on the actions in trajectories (behavior cloning)."""

    keep: Keep = option(
        "success",
        "Filter for the stored trajectories: 'success' keeps only the successful ones, 'all' keeps every trajectory.",
        flag="data_keep",
        choices=("success", "all"),
    )
    skip_invalid: bool = option(False, "Do not train on turns whose action the environment rejected as invalid.")

    def select(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the trajectories to train on; raise BadValue if there are none."""
        chosen = [t for t in trajectories if self.keep == "all" or t.success]
        if not chosen:
            raise BadValue(
                f"none of the {len(trajectories)} stored trajectories is successful, so there is nothing to train on. "
                "Train on all of them with --data-keep all, or collect trajectories with a better agent"
            )
        return chosen


@dataclass(frozen=True, kw_only=True)
class SFTConfig(CloningConfig):
    """Options for SFT."""

    observations: bool = option(
        False,
        "Also train on observation tokens, which teaches an untrained model the environment's language.",
        flag="data_observations",
    )


class SFT(Algorithm[SFTConfig]):
    """L = -mean(log p) over the action tokens in the selected trajectories."""

    name: ClassVar[str] = "sft"
    config_class: ClassVar[type[AlgorithmConfig]] = SFTConfig
    trainer: ClassVar[TrainerKind] = "cloning"
    needs_env: ClassVar[bool] = False
    needs_data: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {"steps": 0, "epochs": 2, **CLONING_DEFAULTS}

    def select(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the trajectories to train on."""
        return self.config.select(trajectories)

    def turn_weights(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        """Return each turn's weight in the loss."""
        return turn_weights(trajectories, [1.0] * len(trajectories), skip_invalid=self.config.skip_invalid)


def sft_weights(
    trajectories: Sequence[Trajectory], *, keep: Keep = "success", skip_invalid: bool = False
) -> list[list[float]]:
    """Return weight 1 for every turn in the trajectories to train on and 0 for all other turns.

    The loss is sum(-w log p) / sum(w) over sampled tokens; prompts and observations have no weight. Failed episodes
    have weight 0 regardless of `keep`. With `skip_invalid`, turns whose action the environment rejected have weight 0
    but remain in the context of later turns.
    """
    if keep not in ("success", "all"):
        raise BadValue(f"keep must be one of success, all; got {keep!r}")
    chosen = [float(t.failure is None and (keep == "all" or bool(t.success))) for t in trajectories]
    return turn_weights(trajectories, chosen, skip_invalid=skip_invalid)


def turn_weights(
    trajectories: Sequence[Trajectory], weights: Sequence[float], *, skip_invalid: bool = False
) -> list[list[float]]:
    """Expand one weight per trajectory to one per turn; with `skip_invalid`, rejected actions get weight 0."""
    return [
        [0.0 if skip_invalid and "invalid" in turn.info else weight for turn in trajectory.turns]
        for trajectory, weight in zip(trajectories, weights, strict=True)
    ]

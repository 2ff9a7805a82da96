"""Supervised cloning: trajectories -> the weight of each turn's sampled tokens in `losses.sft_loss`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from palestra.errors import BadValue
from palestra.rollout.types import Trajectory


def sft_weights(
    trajectories: Sequence[Trajectory], *, keep: Literal["success", "all"] = "success", skip_invalid: bool = False
) -> list[list[float]]:
    """w = 1 for every turn of the trajectories to clone, 0 elsewhere; the loss is sum(-w log p) / sum(w) over tokens.

    Only what the player sampled is ever learnt: prompts and observations have no turn, hence no weight. Failed episodes
    weigh 0 whatever `keep` says. `skip_invalid` leaves out turns whose action the environment could not take; they stay
    in the context of later ones.
    """
    if keep not in ("success", "all"):
        raise BadValue(f"keep is 'success' or 'all', got {keep!r}")
    chosen = [float(t.failure is None and (keep == "all" or bool(t.success))) for t in trajectories]
    return turn_weights(trajectories, chosen, skip_invalid=skip_invalid)


def turn_weights(
    trajectories: Sequence[Trajectory], weights: Sequence[float], *, skip_invalid: bool = False
) -> list[list[float]]:
    """Each turn gets its trajectory's weight."""
    return [
        [0.0 if skip_invalid and "invalid" in turn.info else weight for turn in trajectory.turns]
        for trajectory, weight in zip(trajectories, weights, strict=True)
    ]

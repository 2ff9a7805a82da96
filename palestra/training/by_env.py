"""Trajectories of several environments -> figures for each of them."""

from __future__ import annotations

from collections.abc import Sequence

from palestra.rollout.types import Trajectory


def by_env(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Success, return and turns, each as `name/env id`; episodes that failed as infrastructure are left out."""
    found: dict[str, float] = {}
    played = [t for t in trajectories if t.failure is None]
    for env_id in sorted({t.env_id for t in played}):
        mine = [t for t in played if t.env_id == env_id]
        found[f"episodes/{env_id}"] = float(len(mine))
        found[f"success/{env_id}"] = sum(bool(t.success) for t in mine) / len(mine)
        found[f"return/{env_id}"] = sum(t.total_reward for t in mine) / len(mine)
        found[f"turns_per_episode/{env_id}"] = sum(len(t.turns) for t in mine) / len(mine)
    return found

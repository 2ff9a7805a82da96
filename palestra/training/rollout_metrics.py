"""Compute metrics for the episodes in a training step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palestra.rollout import RolloutResult
from palestra.rollout.types import Trajectory


def rollout_metrics(result: RolloutResult) -> dict[str, Any]:
    """Return the rollout metrics to include in a training metrics row."""
    m = result.metrics
    names = ["success", "success_low", "success_high", "return", "turns_per_episode", "tokens_per_episode", "truncated"]
    names += ["invalid_actions", "format_errors", "cut_replies", "tokens_per_second", "failures"]
    metrics = {name: m[name] for name in names}
    metrics["tokens_per_reply"] = m["tokens_per_episode"] / max(1.0, m["turns_per_episode"])
    return metrics | {f"failures_{boundary}": count for boundary, count in m["failures_by_boundary"].items()}


def metrics_by_env(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return success, return and turns per environment with keys `name/ENV`; failed episodes are excluded."""
    metrics: dict[str, float] = {}
    finished = [t for t in trajectories if t.failure is None]
    for env_id in sorted({t.env_id for t in finished}):
        own = [t for t in finished if t.env_id == env_id]
        metrics[f"episodes/{env_id}"] = float(len(own))
        metrics[f"success/{env_id}"] = sum(bool(t.success) for t in own) / len(own)
        metrics[f"return/{env_id}"] = sum(t.total_reward for t in own) / len(own)
        metrics[f"turns_per_episode/{env_id}"] = sum(len(t.turns) for t in own) / len(own)
    return metrics

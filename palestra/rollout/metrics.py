"""Compute summary metrics for collected trajectories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from palestra.conformance.rates import Rate
from palestra.rollout.types import Trajectory


def compute_metrics(
    trajectories: Sequence[Trajectory], failures: Sequence[Trajectory], seconds: float
) -> dict[str, Any]:
    """Return the success rate with its interval, the mean return, and counts of turns, tokens, splits and failures."""
    everything = [*trajectories, *failures]
    splits: Counter[str] = Counter()
    for trajectory in trajectories:
        splits.update(trajectory.splits)
    turns = sum(len(t.turns) for t in trajectories)
    tokens = sum(t.sampled_tokens for t in trajectories)
    metrics: dict[str, Any] = {
        "episodes": len(trajectories),
        "failures": len(failures),
        "failures_by_boundary": dict(Counter(t.failure.boundary for t in failures if t.failure is not None)),
        "retries": sum(t.attempts - 1 for t in everything),
        "seconds": seconds,
        "episodes_per_second": len(trajectories) / seconds if seconds > 0 else 0.0,
        "tokens": tokens,
        "tokens_per_second": tokens / seconds if seconds > 0 else 0.0,
        "turns": turns,
        "splits": dict(splits),
        "agent_seconds": sum(turn.agent_seconds for t in trajectories for turn in t.turns),
        "env_seconds": sum(turn.env_seconds for t in trajectories for turn in t.turns),
    }
    if trajectories:
        n = len(trajectories)
        rate = Rate(sum(bool(t.success) for t in trajectories), n)
        low, high = rate.interval()
        metrics |= {
            "success": rate.value,
            "success_low": low,
            "success_high": high,
            "return": sum(t.total_reward for t in trajectories) / n,
            "turns_per_episode": turns / n,
            "tokens_per_episode": tokens / n,
            "truncated": sum(t.truncated for t in trajectories) / n,
            "invalid_actions": sum("invalid" in turn.info for t in trajectories for turn in t.turns) / max(turns, 1),
            "cut_replies": _replies(trajectories, "length") / max(turns, 1),
            "empty_replies": _replies(trajectories, "empty") / max(turns, 1),
        }
    return metrics


def _replies(trajectories: Sequence[Trajectory], finish: str) -> int:
    return sum(call.finish == finish for t in trajectories for turn in t.turns for call in turn.action.calls)

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
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    calls = [call for turn in turns for call in turn.action.calls]
    tokens = sum([len(call.ids) for call in calls])
    finishes = Counter([call.finish for call in calls])
    metrics: dict[str, Any] = {
        "episodes": len(trajectories),
        "failures": len(failures),
        "failures_by_boundary": dict(Counter(t.failure.boundary for t in failures if t.failure is not None)),
        "retries": sum(t.attempts - 1 for t in everything),
        "seconds": seconds,
        "episodes_per_second": len(trajectories) / seconds if seconds > 0 else 0.0,
        "tokens": tokens,
        "tokens_per_second": tokens / seconds if seconds > 0 else 0.0,
        "turns": len(turns),
        "splits": dict(Counter([call.split for call in calls if call.split is not None])),
        "agent_seconds": sum([turn.agent_seconds for turn in turns]),
        "env_seconds": sum([turn.env_seconds for turn in turns]),
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
            "turns_per_episode": len(turns) / n,
            "tokens_per_episode": tokens / n,
            "truncated": sum(t.truncated for t in trajectories) / n,
            "invalid_actions": sum(["invalid" in turn.info for turn in turns]) / max(len(turns), 1),
            "format_errors": sum([turn.info.get("invalid") == "format" for turn in turns]) / max(len(turns), 1),
            "cut_replies": finishes["length"] / max(len(turns), 1),
            "empty_replies": finishes["empty"] / max(len(turns), 1),
        }
    return metrics

"""Choose which sampled groups to train on: dynamic sampling replaces groups whose returns are all equal."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from palestra.algorithms.normalize import mean_and_std
from palestra.rollout import RolloutResult
from palestra.rollout.metrics import compute_metrics
from palestra.rollout.types import Trajectory
from palestra.training.distributed import DistributedContext


def group_key(trajectory: Trajectory) -> Hashable:
    """Return the key that the episodes of a group share within a step."""
    return trajectory.env_id, trajectory.group, trajectory.seed


def varied_groups(trajectories: Sequence[Trajectory], distributed: DistributedContext) -> set[Hashable]:
    """Return the keys of the groups, over all processes, whose returns are not all equal."""
    own = [(group_key(t), t.total_reward) for t in trajectories if t.failure is None]
    returns: dict[Hashable, list[float]] = {}
    for shard in distributed.gather(own):
        for key, total in shard:
            returns.setdefault(key, []).append(total)
    return {key for key, totals in returns.items() if mean_and_std(totals)[1] > 0}


def merge(results: Sequence[RolloutResult]) -> RolloutResult:
    """Return the episodes of several rollouts, with metrics over all of them."""
    if len(results) == 1:
        return results[0]
    merged = RolloutResult(
        trajectories=[t for result in results for t in result.trajectories],
        failures=[t for result in results for t in result.failures],
    )
    seconds = sum(result.metrics["seconds"] for result in results)
    merged.metrics = compute_metrics(merged.trajectories, merged.failures, seconds)
    return merged

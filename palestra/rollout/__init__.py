"""Rollouts: run episodes concurrently, store trajectories, and convert them to token samples."""

from palestra.rollout.collect import RolloutResult, collect
from palestra.rollout.env_provider import EnvProvider, create_env_provider
from palestra.rollout.episode import run_episode
from palestra.rollout.metrics import compute_metrics
from palestra.rollout.progress import Progress
from palestra.rollout.samples import TrainingSample, to_samples
from palestra.rollout.store import Writer, read
from palestra.rollout.stream import Budget, Stream, stream
from palestra.rollout.types import Failure, Task, Trajectory, Turn
from palestra.rollout.worker_pool import RolloutWorkers

__all__ = [
    "Budget",
    "EnvProvider",
    "Failure",
    "Progress",
    "RolloutResult",
    "RolloutWorkers",
    "Stream",
    "Task",
    "TrainingSample",
    "Trajectory",
    "Turn",
    "Writer",
    "collect",
    "compute_metrics",
    "create_env_provider",
    "read",
    "run_episode",
    "stream",
    "to_samples",
]

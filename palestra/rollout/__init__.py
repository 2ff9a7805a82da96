"""Many conversations at once, every token exact: episodes, collections, trajectories, token samples."""

from palestra.rollout.collect import Result, collect
from palestra.rollout.episode import play
from palestra.rollout.metrics import summarise
from palestra.rollout.progress import Progress
from palestra.rollout.samples import Sample, to_samples
from palestra.rollout.store import Writer, read
from palestra.rollout.stream import Budget, Stream, stream
from palestra.rollout.types import Failure, Task, Trajectory, Turn

__all__ = [
    "Budget",
    "Failure",
    "Progress",
    "Result",
    "Sample",
    "Stream",
    "Task",
    "Trajectory",
    "Turn",
    "Writer",
    "collect",
    "play",
    "read",
    "stream",
    "summarise",
    "to_samples",
]

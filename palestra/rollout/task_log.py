"""Record which tasks were played in training, to report whether evaluation tasks were among them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from palestra.errors import StoreFailed
from palestra.rollout.types import Trajectory

FILE = "training_tasks.txt"  # one line per distinct task: the step in which it was first played, and its fingerprint


class TaskLog:
    """Fingerprints of all tasks that a training run has played, stored in its folder.

    Entries for `from_step` and later steps are dropped, because a resumed run plays these steps again. Without a
    folder, nothing is stored.
    """

    def __init__(self, folder: Path | None, *, from_step: int = 0) -> None:
        self._path = None if folder is None else folder / FILE
        entries = [] if folder is None else [(step, task) for step, task in _entries(folder) if step < from_step]
        self.tasks = {task for _, task in entries}
        if self._path is not None:
            self._write(self._path, entries, "w")

    def add(self, step: int, trajectories: Iterable[Trajectory]) -> None:
        """Add a step's tasks; environments without fingerprints are ignored."""
        new = {t.task_id for t in trajectories if t.task_id} - self.tasks
        self.tasks |= new
        if new and self._path is not None:
            self._write(self._path, [(step, task) for task in sorted(new)], "a")

    @staticmethod
    def _write(path: Path, entries: list[tuple[int, str]], mode: str) -> None:
        try:
            with path.open(mode, encoding="ascii") as file:
                file.writelines(f"{step} {task}\n" for step, task in entries)
        except OSError as err:
            raise StoreFailed(f"cannot write {path}: {err}") from err


def read_training_tasks(folder: Path) -> frozenset[str] | None:
    """Return the fingerprints of the tasks that the run in `folder` has played; None if the folder has no log."""
    return frozenset(task for _, task in _entries(folder)) if (folder / FILE).exists() else None


def overlap(trajectories: Iterable[Trajectory], seen: Iterable[str]) -> tuple[int, float] | None:
    """Return the number of distinct tasks, and the share of episodes whose task is in `seen`.

    Returns None if no trajectory has a fingerprint.
    """
    tasks = [t.task_id for t in trajectories if t.task_id]
    known = frozenset(seen)
    return (len(set(tasks)), sum(task in known for task in tasks) / len(tasks)) if tasks else None


def _entries(folder: Path) -> list[tuple[int, str]]:
    path = folder / FILE
    if not path.exists():
        return []
    lines = (line.split() for line in path.read_text(encoding="ascii", errors="replace").splitlines())
    return [(int(line[0]), line[1]) for line in lines if len(line) == 2 and line[0].lstrip("-").isdigit()]

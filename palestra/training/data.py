"""Load stored trajectories and choose the examples in each batch. Does not import torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from random import Random
from typing import TypeAlias

from palestra.algorithms.dpo import Pair, task_key
from palestra.errors import BadValue
from palestra.rollout.store import read
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training.config import TrainConfig

Example: TypeAlias = Trajectory | Pair
EVALUATION = "episodes.jsonl"  # file with the episodes of an evaluation
_SUFFIXES = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrajectories:
    """The contents of trajectory files."""

    trajectories: list[Trajectory]  # completed episodes with at least one turn
    failed: int = 0  # number of episodes that ended with an infrastructure failure
    empty: int = 0  # number of episodes without a turn

    @property
    def skipped(self) -> str:
        """Description of the skipped episodes; empty if none were skipped."""
        counts = ((self.failed, "failed"), (self.empty, "without a turn"))
        return ", ".join(f"{count} {what}" for count, what in counts if count)


def find(places: Iterable[str]) -> list[Path]:
    """Resolve files, folders, run folders and globs to a list of trajectory files without duplicates."""
    paths: dict[Path, None] = {}
    for place in places:
        path = Path(place)
        if path.is_file():
            files = [path]
        elif path.is_dir():
            folder = path / "trajectories" if (path / "run.json").exists() else path
            files = _files(folder.rglob("*")) or _evaluation(path / EVALUATION)
        else:
            files = _files(f for name in glob(place, recursive=True) for f in _within(Path(name)))  # noqa: PTH207  # Path.glob rejects absolute paths
        if not files:
            raise BadValue(
                f"--data {place}: no trajectories found (*.jsonl, *.jsonl.gz). A run stores them in its "
                "`trajectories` folder unless it was started with --no-store"
            )
        paths.update(dict.fromkeys(file.resolve() for file in files))
    return list(paths)


def load(places: Iterable[str]) -> StoredTrajectories:
    """Read all trajectories; skip and count those that failed or have no turn."""
    finished: list[Trajectory] = []
    failed = empty = 0
    for path in find(places):
        for trajectory in read(path):
            if trajectory.failure is not None:
                failed += 1
            elif not trajectory.turns:
                empty += 1
            else:
                finished.append(trajectory)
    return StoredTrajectories(trajectories=finished, failed=failed, empty=empty)


def with_planned_steps(config: TrainConfig, count: int) -> TrainConfig:
    """Return the config; if an offline run does not set `steps`, `steps` is computed from the number of examples."""
    if config.algorithm.needs_env or config.run.steps:
        return config
    return config.with_steps(config.optimizer.epochs * updates_per_pass(count, config.algorithm.config.batch))


def updates_per_pass(count: int, batch: int) -> int:
    """Return the number of updates in one pass over `count` examples."""
    return -(-count // batch)


def batch_at(step: int, *, count: int, batch: int, seed: int) -> list[int]:
    """Return the indices of the examples for update `step`. Each pass uses every example once, in random order."""
    passes, place = divmod(step, updates_per_pass(count, batch))
    order = list(range(count))
    Random(child_seed(seed, "data", passes)).shuffle(order)
    return order[place * batch : (place + 1) * batch]


def digest(examples: Sequence[Example]) -> str:
    """Return a hash of the examples."""
    hasher = hashlib.sha256()
    for example in examples:
        for t in (example.chosen, example.rejected) if isinstance(example, Pair) else (example,):
            actions = [turn.action.text for turn in t.turns]
            hasher.update(repr((task_key(t), t.group, t.member, t.total_reward, actions)).encode())
    return hasher.hexdigest()


def check_unchanged(saved_digest: str | None, examples: Sequence[Example], config: TrainConfig) -> None:
    """Raise BadValue if a resumed run has different examples from those it was started with."""
    if saved_digest not in (None, digest(examples)):
        raise BadValue(
            f"the trajectories in {', '.join(config.algorithm.config.data)} have changed since the run in "
            f"{config.folder} started. Choose another --out, or start over with --overwrite"
        )


def _evaluation(file: Path) -> list[Path]:
    """Return the file with an evaluation's episodes if it exists and their tasks are not held out."""
    first = next(iter(read(file)), None) if file.exists() else None
    if first is None:
        return []
    if first.kwargs.get("split") != "train":
        raise BadValue(
            f"--data {file.parent}: this is an evaluation, whose tasks are held out from training. Evaluate with --set "
            f"split=train if {first.env_id} has splits, or use --data {file} to train on these episodes all the same"
        )
    return [file]


def _files(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if path.is_file() and path.name.endswith(_SUFFIXES))


def _within(path: Path) -> Iterable[Path]:
    return path.rglob("*") if path.is_dir() else (path,)

"""Stored trajectories -> what sft and dpo learn from: trajectories to clone, or pairs to prefer. No torch here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from random import Random
from typing import TypeAlias

from palestra.algorithms.dpo import Pair, make_pairs, task_of
from palestra.errors import BadValue
from palestra.rollout.store import read
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training.config import OFFLINE, TrainConfig

Example: TypeAlias = Trajectory | Pair
_ENDINGS = (".jsonl", ".jsonl.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What files of trajectories held."""

    trajectories: list[Trajectory]  # played to their end
    failed: int = 0  # something other than the player broke
    empty: int = 0  # no action was taken

    @property
    def left_out(self) -> str:
        """In words; empty where nothing was."""
        counts = ((self.failed, "failed"), (self.empty, "without a turn"))
        return ", ".join(f"{count} {what}" for count, what in counts if count)


def find(places: Iterable[str]) -> list[Path]:
    """The trajectory files that `places` name: files, folders (runs included) and globs; each once, in order."""
    found: dict[Path, None] = {}
    for place in places:
        path = Path(place)
        if path.is_file():
            files = [path]
        elif path.is_dir():
            inside = path / "trajectories" if (path / "run.json").exists() else path
            files = _files(inside.rglob("*"))
        else:
            files = _files(f for name in glob(place, recursive=True) for f in _within(Path(name)))  # noqa: PTH207  # any glob
        if not files:
            raise BadValue(
                f"--data {place}: there are no trajectories (*.jsonl, *.jsonl.gz). A run keeps them in its folder "
                "`trajectories` unless it was told --no-store"
            )
        found.update(dict.fromkeys(file.resolve() for file in files))
    return list(found)


def load(places: Iterable[str]) -> Stored:
    """All trajectories of `places`, less those that failed or hold no turn, which are counted."""
    sound: list[Trajectory] = []
    failed = empty = 0
    for path in find(places):
        for trajectory in read(path):
            if trajectory.failure is not None:
                failed += 1
            elif not trajectory.turns:
                empty += 1
            else:
                sound.append(trajectory)
    return Stored(trajectories=sound, failed=failed, empty=empty)


def to_clone(stored: Stored, *, keep: str) -> list[Trajectory]:
    """Those that sft learns from."""
    chosen = [t for t in stored.trajectories if keep == "all" or t.success]
    if not chosen:
        raise BadValue(
            f"nothing to clone: of {len(stored.trajectories)} stored trajectories none is a success"
            f"{_besides(stored)}. --data-keep all clones them all; or let a better player play"
        )
    return chosen


def to_compare(stored: Stored, *, margin: float, per_task: int) -> list[Pair]:
    """Pairs for dpo."""
    pairs = make_pairs(stored.trajectories, margin=margin, per_task=per_task or None, usable=lambda t: bool(t.turns))
    if not pairs:
        tasks = len({task_of(t) for t in stored.trajectories})
        raise BadValue(
            f"no pairs: {len(stored.trajectories)} trajectories of {tasks} tasks, and no two of one task whose returns "
            f"differ by {margin:g}{_besides(stored)}. dpo needs several episodes of a seed with different returns: "
            "play with --group-size 2 or more, let two players play the same seeds, or lower --dpo-margin"
        )
    return pairs


def examples_of(config: TrainConfig, stored: Stored) -> list[Example]:
    """What the config's algorithm learns from, an entry each."""
    if config.algo == "dpo":
        return list(to_compare(stored, margin=config.dpo_margin, per_task=config.dpo_pairs))
    return list(to_clone(stored, keep=config.data_keep))


def planned(config: TrainConfig, count: int) -> TrainConfig:
    """The config with its number of steps, where that follows from the data (of `count` examples)."""
    if config.algo not in OFFLINE or config.steps:
        return config
    return replace(config, steps=config.epochs * updates_a_pass(count, config.batch))


def updates_a_pass(count: int, batch: int) -> int:
    return -(-count // batch)


def batch_at(step: int, *, count: int, batch: int, seed: int) -> list[int]:
    """Which of `count` examples update `step` learns from: each once a pass, every pass in an order of its own."""
    passes, place = divmod(step, updates_a_pass(count, batch))
    order = list(range(count))
    Random(child_seed(seed, "data", passes)).shuffle(order)
    return order[place * batch : (place + 1) * batch]


def digest(examples: Sequence[Example]) -> str:
    """Changes when the examples do."""
    found = hashlib.sha256()
    for example in examples:
        for t in (example.chosen, example.rejected) if isinstance(example, Pair) else (example,):
            words = [turn.action.text for turn in t.turns]
            found.update(repr((task_of(t), t.group, t.member, t.total_reward, words)).encode())
    return found.hexdigest()


def check_same(began_with: str | None, examples: Sequence[Example], config: TrainConfig) -> None:
    """Which examples a step learns from follows from what they are, so a run cannot go on with others."""
    if began_with not in (None, digest(examples)):
        raise BadValue(
            f"the trajectories in {', '.join(config.data)} are not those the run in {config.folder} began with. "
            "Choose another --out, or start over with --no-resume"
        )


def _besides(stored: Stored) -> str:
    return f" ({stored.left_out} besides)" if stored.left_out else ""


def _files(paths: Iterable[Path]) -> list[Path]:
    return sorted(path for path in paths if path.is_file() and path.name.endswith(_ENDINGS))


def _within(path: Path) -> Iterable[Path]:
    return path.rglob("*") if path.is_dir() else (path,)

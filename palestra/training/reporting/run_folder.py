"""The folder of a run -> what is known of it: settings, versions, metrics, sample episodes. No torch here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue, ParsingFailed
from palestra.reports.html import mixed
from palestra.training.reporting import metrics

if TYPE_CHECKING:
    from palestra.rollout.types import Trajectory

SETTINGS = "run.json"
LOOKED_AT = 64  # episodes of a file, which may be large, for the few that are shown
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as its folder tells it, finished or not."""

    folder: Path
    config: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    rows: Sequence[Row] = ()  # metrics; step -1 is the evaluation at the start

    @property
    def steps(self) -> list[Row]:
        """Rows of training steps."""
        return [row for row in self.rows if row["step"] >= 0]

    @property
    def evaluations(self) -> list[Row]:
        """Rows with an evaluation on held-out seeds."""
        return [row for row in self.rows if "eval_success" in row]

    @property
    def done(self) -> int:
        """Training steps that were made."""
        return self.rows[-1]["step"] + 1 if self.rows else 0

    @property
    def planned(self) -> int:
        return int(self.config["steps"])

    @property
    def finished(self) -> bool:
        """All steps were made, or the success that was asked for was reached."""
        target = self.config.get("target") or 2.0
        reached = any(row["eval_success"] >= target for row in self.evaluations)
        return reached or self.done >= self.planned > 0 or (self.planned == 0 and self._kept_to_the_end())

    def _kept_to_the_end(self) -> bool:
        return self.done > 0 and last_checkpoint(self.folder) == self.done

    @property
    def title(self) -> str:
        """What it was trained on: environments, or data."""
        envs = [str(env).partition("=")[0] for env in self.config["env"]]
        return " + ".join(envs or map(str, self.config.get("data", ()))) or self.folder.name

    @property
    def stages(self) -> list[tuple[int, int]]:
        """(first step, turns) of every horizon that was in force, in order."""
        found: list[tuple[int, int]] = []
        for row in self.steps:
            turns = row.get("horizon")
            if turns is not None and (not found or found[-1][1] != turns):
                found.append((row["step"], turns))
        return found


def read_run(folder: str | Path) -> RunRecord:
    """What `folder` holds; BadValue where that is no run."""
    folder = Path(folder)
    try:
        saved = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        config = dict(saved["config"])
        record = RunRecord(
            folder=folder,
            config=config,
            versions=dict(saved.get("versions", {})),
            command=list(saved.get("command", ())),
            rows=metrics.read(folder / metrics.FILE),
        )
        _ = record.planned, record.title
    except (FileNotFoundError, NotADirectoryError) as err:
        raise BadValue(f"{folder} holds no run: {SETTINGS} is missing") from err
    except (ValueError, KeyError, TypeError) as err:
        raise BadValue(f"{folder / SETTINGS} is not what a run writes: {err!r}") from err
    return record


def holds_run(folder: Path) -> bool:
    return (folder / SETTINGS).is_file()


def last_checkpoint(folder: Path) -> int | None:
    """The step of the newest whole checkpoint."""
    whole = [path.parent.name for path in (folder / "checkpoints").glob("step-*/trainer.pt")]
    return max((int(name.removeprefix("step-")) for name in whole), default=None)


def sample_episodes(folder: Path, count: int = 4) -> list[Trajectory]:
    """A few episodes of the last stored step, solved and unsolved by turns; none where nothing was stored."""
    from palestra.rollout.store import read as read_trajectories  # the command's help does without

    files = sorted((folder / "trajectories").glob("step-*.jsonl*"))
    for path in reversed(files[-2:]):  # the newest may be empty: it is being written
        try:
            played = [t for t in islice(read_trajectories(path), LOOKED_AT) if t.failure is None and t.turns]
        except ParsingFailed:
            continue
        if played:
            return mixed(played, count)
    return []

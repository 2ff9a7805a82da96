"""Read a run folder: settings, versions, metrics and sample episodes. Does not import torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue, ParsingFailed, StoreFailed
from palestra.folders import ERROR, delete_files, delete_written, recover_folder
from palestra.reports.html import mixed, replace_file
from palestra.training.config_values import parse_weight
from palestra.training.reporting import metrics

if TYPE_CHECKING:
    from palestra.rollout.types import Trajectory

SETTINGS = "run.json"
MAX_READ = 64  # maximum number of episodes to read from a file when selecting examples
Row = Mapping[str, Any]
_FILES = (  # patterns for the files that a run writes outside of folders with a manifest
    *(SETTINGS, "metrics.jsonl", "metrics.part", "training_tasks.txt", "report.html", "curve.png", ERROR),
    *(
        "wandb.json",
        "wandb.part",
        "mlflow.json",
        "mlflow.part",
        "mlflow.db",
        "start.pt",
        "best.pt",
        "tensorboard/events.out.tfevents.*",
    ),
    "trajectories/step-*.jsonl.gz",
    "checkpoints/step-*/manifest.json",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The contents of a run folder; the run may be unfinished."""

    folder: Path
    config: Mapping[str, Any]  # one table per section
    versions: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = ()
    rows: Sequence[Row] = ()  # metrics; step -1 is evaluated before RL, lower steps in the warm start

    @property
    def steps(self) -> list[Row]:
        """Metrics rows for training steps."""
        return [row for row in self.rows if row["step"] >= 0]

    @property
    def evaluations(self) -> list[Row]:
        """Metrics rows with an evaluation on held-out tasks."""
        return [row for row in self.rows if "eval_success" in row]

    @property
    def done(self) -> int:
        """Number of finished training steps."""
        return self.rows[-1]["step"] + 1 if self.rows else 0

    @property
    def planned(self) -> int:
        """Number of steps in the config; 0 if it depends on the data."""
        return int(self.config["run"]["steps"])

    @property
    def finished(self) -> bool:
        """True if all steps are done or the target success rate was reached."""
        target = self.config.get("eval", {}).get("target") or 2.0
        reached = any(row["eval_success"] >= target for row in self.evaluations)
        return reached or self.done >= self.planned > 0 or (self.planned == 0 and self._saved_at_the_end())

    def _saved_at_the_end(self) -> bool:
        return self.done > 0 and last_checkpoint(self.folder) == self.done

    @property
    def title(self) -> str:
        """Environments or data that the model was trained on."""
        envs = [parse_weight(str(name))[0] for name in self.config["env"]["name"]]
        return " + ".join(envs or map(str, self.config["algorithm"].get("data", ()))) or self.folder.name

    @property
    def algorithm(self) -> str:
        return str(self.config["algorithm"]["name"])

    @property
    def model(self) -> str:
        return str(self.config["model"]["name"])

    @property
    def stages(self) -> list[tuple[int, int]]:
        """First step and maximum number of turns for each stage in the horizon schedule."""
        stages: list[tuple[int, int]] = []
        for row in self.steps:
            turns = row.get("horizon")
            if turns is not None and (not stages or stages[-1][1] != turns):
                stages.append((row["step"], turns))
        return stages


def read_run(folder: str | Path) -> RunRecord:
    """Read a run folder; raise BadValue if it does not contain a run."""
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
        _ = record.planned, record.title, record.algorithm, record.model
    except (FileNotFoundError, NotADirectoryError) as err:
        raise BadValue(f"{folder} contains no run ({SETTINGS} is missing)") from err
    except (ValueError, KeyError, TypeError) as err:
        raise BadValue(f"{folder / SETTINGS} is not a valid run file: {err!r}") from err
    return record


def holds_run(folder: Path) -> bool:
    """Return whether a training run was started in this folder; its files may be damaged."""
    return (folder / SETTINGS).is_file() or (folder / "checkpoints").is_dir()


def readable_settings(folder: Path) -> bool:
    """Return whether a run's settings file exists and is intact."""
    try:
        return isinstance(json.loads((folder / SETTINGS).read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write a run's settings file atomically."""
    replace_file(folder / SETTINGS, (json.dumps(settings, indent=2) + "\n").encode())


def delete_run(folder: Path) -> None:
    """Delete a run's files, and nothing else in its folder."""
    models = [folder / "last", folder / "best", folder / "start", *(folder / "checkpoints").glob("step-*")]
    try:
        for path in models:
            recover_folder(path)
            delete_written(path)
            shutil.rmtree(path.with_name(f".{path.name}.part"), ignore_errors=True)
        delete_files(folder, [str(path.relative_to(folder)) for pattern in _FILES for path in folder.glob(pattern)])
    except OSError as err:
        raise StoreFailed(f"cannot delete the run in {folder}: {err}") from err
    folder.mkdir(parents=True, exist_ok=True)


def last_checkpoint(folder: Path) -> int | None:
    """Return the step of the newest complete checkpoint, or None."""
    complete = [path.parent.name for path in (folder / "checkpoints").glob("step-*/manifest.json")]
    return max((int(name.removeprefix("step-")) for name in complete), default=None)


def sample_episodes(folder: Path, count: int = 4) -> list[Trajectory]:
    """Return a few episodes from the last stored step, alternating between successful and unsuccessful ones."""
    from palestra.rollout.store import (
        read as read_trajectories,  # imported here to keep `palestra train --help` fast
    )

    files = sorted((folder / "trajectories").glob("step-*.jsonl*"))
    for path in reversed(files[-2:]):  # the newest file may still be empty
        try:
            played = [t for t in islice(read_trajectories(path), MAX_READ) if t.failure is None and t.turns]
        except ParsingFailed:
            continue
        if played:
            return mixed(played, count)
    return []

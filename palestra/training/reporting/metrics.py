"""Write a run's metrics to `metrics.jsonl`, and optionally to TensorBoard, Weights & Biases and MLflow.

`metrics.jsonl` is the source of truth. When a run is resumed, rows for steps that will be repeated are dropped,
TensorBoard events are rewritten from the remaining rows, and only new steps are sent to Weights & Biases and MLflow.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from palestra.errors import StoreFailed
from palestra.training.reporting.trackers import MLflow, Sink, TensorBoard, WandB

FILE = "metrics.jsonl"
BARS = "▁▂▃▄▅▆▇█"


class Metrics:
    """Appends rows to `metrics.jsonl` and to all sinks.

    Stored rows from `from_step` on are dropped first, and all of them if it is None. Sinks do not receive the
    evaluations during the warm start, whose step numbers are negative.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tensorboard: bool = False,
        wandb: bool = False,
        mlflow: bool = False,
        config: Mapping[str, Any] | None = None,
        from_step: int | None = None,
    ) -> None:
        self.path = folder / FILE
        self.rows = rows_before(self.path, from_step)
        part = self.path.with_suffix(".part")
        try:
            part.write_text("".join(_line(row) for row in self.rows), encoding="utf-8")
            part.replace(self.path)
        except OSError as err:
            raise StoreFailed(f"cannot write {self.path}: {err}") from err
        self._sinks: list[Sink] = []
        if tensorboard:
            self._sinks.append(TensorBoard(folder / "tensorboard", self.rows))
        if wandb:
            self._sinks.append(WandB(folder, self.rows, config or {}))
        if mlflow:
            self._sinks.append(MLflow(folder, self.rows, config or {}))

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a step's metrics."""
        self.rows.append(dict(row))
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(row))
                file.flush()
                os.fsync(file.fileno())
        except OSError as err:
            raise StoreFailed(f"cannot write {self.path}: {err}") from err
        for sink in self._sinks:
            sink.add(row)

    def close(self) -> None:
        """Close the sinks. Idempotent."""
        while self._sinks:
            self._sinks.pop().close()


class MetricsInMemory(Metrics):
    """Metrics for a process that writes no files."""

    def __init__(self, folder: Path, *, from_step: int | None = None, **_: Any) -> None:
        self.rows = rows_before(folder / "metrics.jsonl", from_step)
        self._sinks = []

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows.append(dict(row))


def rows_before(path: Path, step: int | None) -> list[dict[str, Any]]:
    """Return the rows in a metrics file before a step, or an empty list if it is None."""
    return [] if step is None else [row for row in read(path) if row["step"] < step]


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows in a metrics file, or an empty list if the file does not exist.

    The last line may be incomplete after a crash. Any other damaged line is skipped with a warning.
    """
    if not path.exists():
        return []
    rows = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not isinstance(row["step"], int):
                raise ValueError
            rows.append(row)
        except (ValueError, TypeError, KeyError):
            if number < len(lines):
                warnings.warn(f"{path}: line {number} is damaged and was skipped", RuntimeWarning, stacklevel=2)
    return rows


def sparkline(values: Sequence[float], width: int = 30) -> str:
    """Format values between 0 and 1 as at most `width` bars; if there are more values, each bar is a mean."""
    means = [sum(part) / len(part) for part in _parts(values, width)]
    return "".join(BARS[min(len(BARS) - 1, int(max(0.0, value) * len(BARS)))] for value in means)


def _parts(values: Sequence[float], count: int) -> list[Sequence[float]]:
    """Split `values` into at most `count` nonempty parts of about equal length."""
    count = min(count, len(values))
    bounds = [len(values) * i // count for i in range(count + 1)] if count else [0]
    return [values[start:end] for start, end in pairwise(bounds)]


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row) + "\n"

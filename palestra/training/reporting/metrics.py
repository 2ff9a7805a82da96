"""Write a run's metrics to `metrics.jsonl`, and optionally to TensorBoard and Weights & Biases.

`metrics.jsonl` is the source of truth. When a run is resumed, rows for steps that will be repeated are dropped,
TensorBoard events are rewritten from the remaining rows, and only new steps are sent to Weights & Biases.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from palestra.errors import BadValue, StoreFailed
from palestra.optional import require

FILE = "metrics.jsonl"
BARS = "▁▂▃▄▅▆▇█"


class Sink(Protocol):
    """Destination for the metrics from each step."""

    def add(self, row: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class Metrics:
    """Appends rows to `metrics.jsonl` and to all sinks. Stored rows from `from_step` on are dropped first."""

    def __init__(
        self,
        folder: Path,
        *,
        tensorboard: bool = False,
        wandb: bool = False,
        config: Mapping[str, Any] | None = None,
        from_step: int = 0,
    ) -> None:
        self.path = folder / FILE
        self.rows = [row for row in read(self.path) if row["step"] < from_step]
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


class TensorBoard:
    """Writes TensorBoard events to `folder`, starting with `rows`; the x axis is the number of completed steps."""

    def __init__(self, folder: Path, rows: Sequence[Mapping[str, Any]] = ()) -> None:
        writer = require("tensorboard.summary.writer.event_file_writer", extra="train").EventFileWriter
        self._protos = (
            require("tensorboard.compat.proto.event_pb2", extra="train").Event,
            require("tensorboard.compat.proto.summary_pb2", extra="train").Summary,
        )
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()  # a killed process may have left truncated or duplicate events
        try:
            self._writer: Any = writer(str(folder))
            for row in rows:
                self.add(row)
        except OSError as err:
            raise StoreFailed(f"cannot write {folder}: {err}") from err

    def add(self, row: Mapping[str, Any]) -> None:
        event, summary = self._protos
        values = [summary.Value(tag=name, simple_value=value) for name, value in numbers(row).items()]
        self._writer.add_event(event(step=row["step"] + 1, summary=summary(value=values)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandB:
    """Logs to Weights & Biases if you are logged in, otherwise offline to `folder/wandb` for `wandb sync`."""

    def __init__(self, folder: Path, rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> None:
        wandb = require("wandb", extra="wandb")
        self._state_file = folder / "wandb.json"  # run id and the last step that was sent
        state = _json(self._state_file) or {"id": secrets.token_hex(4), "sent": -2}
        mode = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False) else "offline")
        self._id: str = state["id"]
        self._sent: int = state["sent"]
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "palestra"),
                name=folder.name,
                id=self._id,
                resume="allow",
                mode=mode,
                dir=str(folder),
                config=dict(config),
                settings=wandb.Settings(silent=True, console="off", disable_git=True),
            )
        except wandb.errors.Error as err:
            raise BadValue(f"cannot start Weights & Biases: {err}. Set WANDB_MODE=offline to log locally") from err
        self._run.define_metric("steps")
        self._run.define_metric("*", step_metric="steps")
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any]) -> None:
        if row["step"] <= self._sent:
            return  # the step was sent before the run was interrupted
        self._run.log({"steps": row["step"] + 1, **numbers(row)})
        self._sent = row["step"]
        part = self._state_file.with_suffix(".part")
        try:
            part.write_text(json.dumps({"id": self._id, "sent": self._sent}) + "\n", encoding="utf-8")
            part.replace(self._state_file)
        except OSError as err:
            raise StoreFailed(f"{self._state_file} cannot be written: {err}") from err

    def close(self) -> None:
        self._run.finish()


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries in a row that are finite numbers."""
    plain = {k: v for k, v in row.items() if isinstance(v, (int, float)) and not isinstance(v, bool) and k != "step"}
    return {name: value for name, value in plain.items() if math.isfinite(value)}


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


def _json(path: Path) -> dict[str, Any] | None:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and {"id", "sent"} <= set(state) else None

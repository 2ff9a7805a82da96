"""Send a run's metrics to TensorBoard, Weights & Biases and MLflow."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import secrets
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from palestra.errors import BadValue, StoreFailed
from palestra.optional import require

MLFLOW_DATABASE = "mlflow.db"
NOTHING_SENT = -(10**9)  # less than the negative steps of evaluations in the warm start
MAX_VALUE, MAX_PARAMETERS = 6000, 100  # limits of MLflow: characters per parameter, parameters per request


class Sink(Protocol):
    """Destination for the metrics from each step."""

    def add(self, row: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


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
        state = read_sent(self._state_file) or {"id": secrets.token_hex(4), "sent": NOTHING_SENT}
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
        write_sent(self._state_file, self._id, self._sent)

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """Logs to `MLFLOW_TRACKING_URI` if it is set, otherwise to an SQLite database in `folder`.

    The run continues under the same id when it is resumed, and steps that were logged before are not logged again.
    """

    def __init__(self, folder: Path, rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> None:
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        mlflow = require("mlflow.tracking", extra="mlflow")
        require("sqlalchemy", extra="mlflow")  # mlflow-skinny does not install it
        self._entities = require("mlflow.entities", extra="mlflow")
        self._error = require("mlflow.exceptions", extra="mlflow").MlflowException
        where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(folder / MLFLOW_DATABASE).resolve()}"
        self._state_file = folder / "mlflow.json"  # run id and the last step that was logged
        state = read_sent(self._state_file)
        try:
            self._client = mlflow.MlflowClient(tracking_uri=where)
            if state is None:
                self._id, self._sent = self._create(folder, config), NOTHING_SENT
            else:
                self._id, self._sent = state["id"], state["sent"]
                self._client.update_run(self._id, status="RUNNING")
        except self._error as err:
            raise BadValue(
                f"cannot start MLflow at {where}: {err}. Correct MLFLOW_TRACKING_URI, or unset it to log to {folder}"
            ) from err
        self._unsent: list[Mapping[str, Any]] = [row for row in rows if row["step"] > self._sent]

    def add(self, row: Mapping[str, Any]) -> None:
        if row["step"] > self._sent:
            self._unsent.append(row)
        try:
            self._send()
        except self._error as err:  # the server may respond again before the next step
            warnings.warn(f"cannot log step {row['step']} to MLflow, will retry: {err}", RuntimeWarning, stacklevel=2)

    def close(self) -> None:
        try:
            self._send()
            self._client.set_terminated(self._id)
        except self._error as err:
            warnings.warn(f"cannot log the last steps to MLflow: {err}", RuntimeWarning, stacklevel=2)

    def _send(self) -> None:
        metric = self._entities.Metric
        while self._unsent:
            row, now = self._unsent[0], int(time.time() * 1000)
            values = [metric(_name(name), value, now, row["step"] + 1) for name, value in numbers(row).items()]
            self._client.log_batch(self._id, metrics=values)
            self._sent = row["step"]
            write_sent(self._state_file, self._id, self._sent)
            self._unsent.pop(0)

    def _create(self, folder: Path, config: Mapping[str, Any]) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "palestra")
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        run_id: str = self._client.create_run(number, run_name=folder.name).info.run_id
        settings = [self._entities.Param(key, value[:MAX_VALUE]) for key, value in _parameters(config)]
        for start in range(0, len(settings), MAX_PARAMETERS):
            self._client.log_batch(run_id, params=settings[start : start + MAX_PARAMETERS])
        return run_id


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries in a row that are finite numbers."""
    plain = {k: v for k, v in row.items() if isinstance(v, (int, float)) and not isinstance(v, bool) and k != "step"}
    return {name: value for name, value in plain.items() if math.isfinite(value)}


def read_sent(path: Path) -> dict[str, Any] | None:
    """Return the id of a tracker's run and the last step that was sent to it; None if `path` does not contain them."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and {"id", "sent"} <= set(state) else None


def write_sent(path: Path, run_id: str, step: int) -> None:
    """Store the id of a tracker's run and the last step that was sent to it."""
    part = path.with_suffix(".part")
    try:
        part.write_text(json.dumps({"id": run_id, "sent": step}) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as err:
        raise StoreFailed(f"{path} cannot be written: {err}") from err


def _parameters(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the settings as `section.key` and text."""
    for section, table in config.items():
        for key, value in table.items() if isinstance(table, Mapping) else ():
            yield f"{section}.{key}", value if isinstance(value, str) else json.dumps(value, default=str)


def _name(metric: str) -> str:
    """Replace the characters that MLflow rejects; metrics per environment may contain a URL."""
    return re.sub(r"[^\w\-./: ]", "_", re.sub(r"/+", "/", metric))

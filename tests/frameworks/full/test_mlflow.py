"""Test that `palestra train --mlflow` logs each step once to a real MLflow database, even if the run is resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
MLFLOW = ROOT / ".cache" / "frameworks-full" / "mlflow"
TRAIN = (
    *(sys.executable, "-m", "palestra", "train", "--env", "game:GuessTheNumber-v0-easy", "--episodes", "8"),
    *("--warm-start", "0", "--eval-episodes", "4", "--mlflow", "--out", "run", "--json"),
)
READ = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=sys.argv[1])
experiment = client.get_experiment_by_name("palestra")
print(json.dumps([
    {
        "name": run.info.run_name,
        "status": run.info.status,
        "steps": [metric.step for metric in client.get_metric_history(run.info.run_id, "success")],
        "success": [metric.value for metric in client.get_metric_history(run.info.run_id, "success")],
        "settings": run.data.params,
    }
    for run in client.search_runs([experiment.experiment_id])
]))
"""


def execute(command: tuple[str, ...], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(MLFLOW))), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def runs(folder: Path, uri: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(execute((sys.executable, "-c", READ, uri), folder).splitlines()[-1])
    return found


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "success" in row]


def test_a_resumed_run_logs_each_step_once(tmp_path: Path) -> None:
    execute((*TRAIN, "--steps", "1"), tmp_path)
    execute((*TRAIN, "--steps", "2"), tmp_path)
    (run,) = runs(tmp_path, "sqlite:///run/mlflow.db")
    assert (run["name"], run["status"], run["steps"]) == ("run", "FINISHED", [1, 2])
    assert run["success"] == [row["success"] for row in rows(tmp_path)]
    assert run["settings"]["sampling.episodes"] == "8"
    assert run["settings"]["env.name"] == '["game:GuessTheNumber-v0-easy"]'


def test_the_address_in_the_environment_is_used(tmp_path: Path) -> None:
    execute((*TRAIN, "--steps", "1"), tmp_path, MLFLOW_TRACKING_URI="sqlite:///all.db")
    assert [run["steps"] for run in runs(tmp_path, "sqlite:///all.db")] == [[1]]
    assert not (tmp_path / "run" / "mlflow.db").exists()


def test_an_address_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    done = subprocess.run(
        (*TRAIN, "--steps", "1"),
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(MLFLOW))),
            "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "cannot start MLflow at http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr

"""Test that a run's metrics and trackers are complete after a kill, without duplicate or undocumented values."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from palestra.errors import MissingExtra, StoreFailed
from palestra.training.recipe import from_mapping
from palestra.training.reporting import metrics
from palestra.training.reporting.metrics import Metrics, read
from palestra.training.reporting.trackers import numbers

DOCS = Path(__file__).parents[2] / "docs" / "training.md"


def steps(folder: Path) -> list[int]:
    return [row["step"] for row in read(folder / metrics.FILE)]


def fill(sink: Metrics, first: int, last: int, value: float = 0.5) -> None:
    for step in range(first, last):
        sink.add({"step": step, "success": value, "horizon": None})


def test_rows_of_repeated_steps_are_dropped(tmp_path: Path) -> None:
    fill(Metrics(tmp_path, from_step=-1), -1, 5)
    with (tmp_path / metrics.FILE).open("a") as file:
        file.write('{"step": 5, "succ')  # the process is killed in the middle of a line
    again = Metrics(tmp_path, from_step=3)
    assert [row["step"] for row in again.rows] == steps(tmp_path) == [-1, 0, 1, 2]
    fill(again, 3, 6)
    assert steps(tmp_path) == [-1, 0, 1, 2, 3, 4, 5]


def test_a_fresh_start_drops_everything(tmp_path: Path) -> None:
    fill(Metrics(tmp_path, from_step=-1), -1, 5)
    Metrics(tmp_path, from_step=-1)
    assert steps(tmp_path) == []


def test_an_unwritable_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"cannot write .*metrics\.jsonl"):
        Metrics(tmp_path / "missing")
    sink = Metrics(tmp_path)
    sink.path = Path("/dev/full")
    with pytest.raises(StoreFailed, match="No space left"):
        sink.add({"step": 0})


def test_only_finite_numbers_are_plotted() -> None:
    row = {"step": 3, "a": 1, "b": 0.5, "c": None, "d": True, "e": float("nan"), "f": float("inf"), "g": "text"}
    assert numbers(row) == {"a": 1, "b": 0.5}


def test_tensorboard_contains_each_row_once_after_a_kill(tmp_path: Path) -> None:
    killed = Metrics(tmp_path, tensorboard=True, from_step=-1)
    fill(killed, -1, 5, 0.25)  # `killed` is never closed
    resumed = Metrics(tmp_path, tensorboard=True, from_step=3)
    fill(resumed, 3, 6, 0.75)
    resumed.close()
    resumed.close()
    killed.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["success"]
    assert [(e.step, e.value) for e in events.Scalars("success")] == [
        *((made, 0.25) for made in range(4)),
        *((made, 0.75) for made in range(4, 7)),
    ]


def wandb_history(folder: Path) -> list[dict[str, Any]]:
    """Return the rows in the files of offline runs, oldest run first."""
    from wandb.proto.wandb_internal_pb2 import Record  # slow to import

    found = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in wandb_records(path.read_bytes()):
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                found.append({i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items})
    return found


def wandb_records(data: bytes) -> Iterator[bytes]:
    """Yield a log's records, which are split into chunks with a checksum, length and kind in blocks of 32 KiB."""
    at, parts = 7, b""
    while at < len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # full or last chunk of a record
            yield parts
            parts = b""


def test_wandb_offline_gets_each_step_once_over_two_processes(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from palestra.training.reporting.metrics import Metrics\n"
        "first, last = map(int, sys.argv[2:])\n"
        "sink = Metrics(Path(sys.argv[1]), wandb=True, config={'lr': 0.1}, from_step=first)\n"
        "for step in range(first, last): sink.add({'step': step, 'success': 0.5, 'horizon': None})\n"
        "sink.close()\n"
    )
    folder = tmp_path / "run"
    folder.mkdir()
    for first, last in ((-3, 5), (3, 8)):  # evaluations in the warm start have negative steps
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder), str(first), str(last)],
            env={"PATH": "", "HOME": str(tmp_path)},  # the environment contains no login to wandb
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout + done.stderr == ""
    rows = wandb_history(folder)
    assert [row["steps"] for row in rows] == list(range(-2, 9))
    assert all(row["success"] == 0.5 for row in rows)
    assert len({path.stem for path in folder.glob("wandb/offline-run-*/*.wandb")}) == 1, (
        "both processes must log to the same run"
    )


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # import raises ModuleNotFoundError
    with pytest.raises(MissingExtra, match=r"pip install .*\[wandb\]'"):
        Metrics(tmp_path, wandb=True)
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[train\]'"):
        Metrics(tmp_path, tensorboard=True)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[mlflow\]'"):
        Metrics(tmp_path, mlflow=True)


def documented() -> list[str]:
    section = DOCS.read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
    return [
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    ]


def test_every_key_is_documented(taught: str, tmp_path: Path) -> None:
    from palestra.training import train

    names = documented()
    settings: dict[str, Any] = {
        "model": taught,
        "steps": 1,
        "episodes": 16,
        "eval_episodes": 4,
        "threads": 1,
        "kl": 0.01,
        "out": str(tmp_path / "ppo"),
    }
    games = ["game:GuessTheNumber-v0-easy", "game:GuessTheNumber-v0-hard"]
    first = train(from_mapping({**settings, "env": games[0], "algorithm": "ppo"}))
    other = {"algorithm": "grpo", "out": str(tmp_path / "grpo")}
    second = train(from_mapping({**settings, **other, "env": games}))
    keys = {key for row in [*first.rows, *second.rows] for key in row}
    assert {"grad_norm", "kl", "value_loss", "singleton", "eval_success"} <= keys, "both runs must update the weights"
    for key in keys:
        assert any(fnmatchcase(key, name) for name in names), f"docs/training.md does not describe {key}"

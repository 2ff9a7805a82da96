"""Chaos in training: the process is killed at random moments, and checkpoints are damaged."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from tests import warm_process
from tests.chaos import training_run
from tests.chaos.rounds import rounds

ROOT = Path(__file__).parents[2]


def command(folder: Path, seed: int) -> list[str]:
    return [sys.executable, "-m", "tests.chaos.training_run", str(folder), str(seed)]


def count_files(folder: Path) -> int:
    """Count the files and folders. `os.walk` ignores folders that the run deletes in the meantime; `rglob` does not."""
    return sum(len(folders) + len(files) for _, folders, files in os.walk(folder))


def kill_at_random(args: list[str], folder: Path, rng: Random) -> None:
    """Start a run and kill it when it has created a random number of files, or let it finish."""
    wanted = count_files(folder) + rng.randint(1, 60)
    process = warm_process.Popen(args, cwd=ROOT)
    while process.poll() is None and count_files(folder) < wanted:
        time.sleep(0.01)
    process.kill()
    process.wait()


def damage(folder: Path, rng: Random) -> None:
    """Truncate, change or delete a random file in the newest checkpoint, unless it is the only one."""
    checkpoints = sorted((folder / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
    files = sorted(path for path in checkpoints[-1].rglob("*") if path.is_file()) if len(checkpoints) > 1 else []
    if not files:
        return
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    kind = rng.choice(["truncated", "changed", "deleted"])
    print(f"{path.relative_to(folder)} is {kind}")
    if kind == "deleted" or not data:
        path.unlink()
        return
    place = rng.randrange(len(data))
    if kind == "truncated":
        os.truncate(path, place)
    else:
        data[place] ^= 0xFF
        path.write_bytes(data)


def curve(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if "second" not in name} for row in rows]


def test_killed_and_damaged_runs(tmp_path: Path) -> None:
    """Check that a run that is killed and damaged ends with the same curve and weights as an uninterrupted one."""
    for number, rng in enumerate(rounds("killed and damaged runs")):
        killed, whole, seed = tmp_path / f"killed-{number}", tmp_path / f"whole-{number}", rng.randrange(1000)
        kill_at_random(command(killed, seed), killed, rng)
        damage(killed, rng)
        assert warm_process.run(command(killed, seed), cwd=ROOT).returncode == 0
        training_run.main(str(whole), str(seed))
        assert curve(killed) == curve(whole)
        assert all(row["grad_norm"] > 0 for row in curve(whole)[1:])
        weights = [(folder / "last" / "model.safetensors").read_bytes() for folder in (killed, whole)]
        assert weights[0] == weights[1]

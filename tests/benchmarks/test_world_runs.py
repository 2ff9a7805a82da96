"""The benchmark of the world runs, and its exit code says what it prints. No figure is asserted."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "world.py"


def test_world() -> None:
    command = [sys.executable, str(SCRIPT), "--pages", "500", "--questions", "10", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr
    said = json.loads(done.stdout)
    assert done.returncode == bool(said["missed"])
    assert said["written"]["identical"]
    assert all(figures["right"] == figures["asked"] == 10 for figures in said["answered"].values())


def test_bars_are_bars() -> None:
    missed = runpy.run_path(str(SCRIPT))["missed"]
    fine = {"wall_s": 1.0, "memory_gb": 0.1, "identical": True}
    row = {"right": 9, "asked": 10}
    assert missed({"written": fine, "answered": {}}) == []
    assert len(missed({"written": {**fine, "wall_s": 61.0, "identical": False}, "answered": {"1hop": row}})) == 3

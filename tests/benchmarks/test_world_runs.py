"""Test that benchmarks/world.py runs and its exit code matches its report. Timings are not checked."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "world.py"


def test_the_world_benchmark_runs() -> None:
    command = [sys.executable, str(SCRIPT), "--pages", "500", "--questions", "10", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == bool(report["failures"])
    assert report["generation"]["identical"]
    assert all(figures["correct"] == figures["questions"] == 10 for figures in report["solver"].values())


def test_unmet_requirements_are_reported() -> None:
    failures = runpy.run_path(str(SCRIPT))["failures"]
    fine = {"wall_s": 1.0, "memory_gb": 0.1, "identical": True}
    row = {"correct": 9, "questions": 10}
    assert failures({"generation": fine, "solver": {}}) == []
    assert len(failures({"generation": {**fine, "wall_s": 61.0, "identical": False}, "solver": {"1hop": row}})) == 3

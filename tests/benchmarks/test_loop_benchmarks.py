"""Test that the benchmarks of host time and of the training loop run on a CPU. Timings are not checked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import warm_process

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_host_time_is_compared_with_a_bare_loop() -> None:
    command = [sys.executable, str(BENCHMARKS / "host_time.py"), "--episodes", "4", "--rounds", "1", "--json"]
    done = warm_process.run(command, capture_output=True)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert min(report["ours"]["turn"], report["bare"]["turn"]) > 0
    assert set(report["ratios"]) == {"turn", "token"}


@pytest.mark.slow
def test_the_loop_reports_rates_and_phases(tmp_path: Path) -> None:
    options = ["--device", "cpu", "--shapes", "tiny", "--steps", "2", "--episodes", "4", "--out"]
    command = [sys.executable, str(BENCHMARKS / "gpu_loop.py"), *options, str(tmp_path / "out.json")]
    done = warm_process.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (row,) = json.loads((tmp_path / "out.json").read_text())
    assert row["learned tokens/s"] > row["sampled tokens/s"] > 0
    assert row["sampling %"] + row["learning %"] == pytest.approx(100)


@pytest.mark.slow
def test_the_check_of_cuda_streams_runs_without_them() -> None:
    options = ["--device", "cpu", "--size", "0.1M", "--rounds", "1"]
    done = warm_process.run([sys.executable, str(BENCHMARKS / "gpu_races.py"), *options], capture_output=True)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert (report["failed_self_checks"], report["wrong_replies"]) == (0, 0)

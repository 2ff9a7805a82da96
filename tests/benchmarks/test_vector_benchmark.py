"""Test that the vector benchmark runs and its exit code matches its output. Timings are not checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_it_runs_without_gem() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "vector.py"), "--quick", "--no-gem", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == bool(report["missed"])
    assert list(report["rates"]) == ["cheap 64", "short 64", "cheap 1024", "short 1024", "slow", "busy"]
    assert all(rate > 0 for rates in report["rates"].values() for rate in rates.values())
    assert report["ratios"]["cheap 64: sync / bare loop"] > 0
    assert report["transcripts"] == {"ours": 1}
    faults = report["faults"]
    assert faults["requested"] == faults["steps"] == faults["correct"] == 500


def test_each_bar_can_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import vector as benchmark  # type: ignore[import-not-found]

    def report(transcripts: int = 1, correct: int = 9, **ratios: float) -> dict[str, Any]:
        return {
            "ratios": {**dict(benchmark.BARS), **{name.replace("_", " "): value for name, value in ratios.items()}},
            "transcripts": {"ours": transcripts},
            "faults": {"requested": 9, "steps": 9, "correct": correct},
        }

    assert benchmark.missed_bars(report()) == []
    assert len(benchmark.missed_bars(report(transcripts=2))) == 1
    assert len(benchmark.missed_bars(report(correct=8))) == 1
    for name, bar in benchmark.BARS.items():
        assert len(benchmark.missed_bars({**report(), "ratios": {**benchmark.BARS, name: bar - 0.01}})) == 1

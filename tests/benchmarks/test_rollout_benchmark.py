"""Test that the rollout and prompt benchmarks run and their exit codes match their output. Timings are not checked."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm_process

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rollout.py"
PROMPTS = SCRIPT.with_name("prompts.py")


@pytest.mark.slow
def test_measures_palestra_and_the_bare_loop() -> None:
    options = ["--quick", "--no-peer", "--json"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == bool(report["missed"])
    assert list(report["concurrent"]) == ["64", "256"]
    for figures in report["concurrent"].values():
        assert figures["ours"]["rate"] > 0
        assert figures["bare"]["rate"] > 0
        assert list(figures["ratios"]) == ["bare"]
    assert report["slow"]["ratio"] > 0


def test_each_required_ratio_can_be_missed() -> None:
    missed = runpy.run_path(str(SCRIPT))["missed"]

    def report(peer: float = 10.0, bare: float = 0.4, slow: float = 0.8) -> dict[str, Any]:
        return {"concurrent": {"256": {"ratios": {"verifiers": peer, "bare": bare}}}, "slow": {"ratio": slow}}

    assert missed(report()) == []
    assert len(missed(report(peer=9.9))) == 1
    assert len(missed(report(bare=0.39))) == 1
    assert len(missed(report(slow=0.79))) == 1
    assert len(missed(report(9.0, 0.3, 0.7))) == 3
    without_peer = report()
    del without_peer["concurrent"]["256"]["ratios"]["verifiers"]
    assert missed(without_peer) == []


@pytest.mark.slow
def test_prompt_benchmark_compares_both_ways_of_building_prompts() -> None:
    command = [sys.executable, str(PROMPTS), "--episodes", "1", "--rounds", "1", "--turns", "3", "6", "--json"]
    done = warm_process.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert list(report) == ["default", "reasoning"]
    assert all(row["rollout_ratio"] > 0 for table in report.values() for row in table.values())

"""Test that the grading benchmark runs and its exit code matches its output. Timings are not checked."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_grading_runs_without_gem_and_grades_every_answer_correctly() -> None:
    command = [sys.executable, str(BENCHMARKS / "grading.py"), "--quick", "--no-gem", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    report = json.loads(done.stdout)
    assert (done.returncode, report["missed"]) == (0, [])
    assert report["ours"]["correct"] == 1.0
    assert report["ours"]["code_s"] > 0


def test_each_bar_can_be_missed() -> None:
    module = runpy.run_path(str(BENCHMARKS / "grading.py"))
    missed_bars = module["missed_bars"]

    def figures(**changed: float) -> dict[str, Any]:
        ours = {"answers_per_s": 30.0, "correct": 1.0, "code_s": 0.1, "code_wrong_s": 0.1}
        gem = {"answers_per_s": 10.0, "correct": 1.0, "code_s": 0.5, "code_wrong_s": 0.5}
        return {"ours": {**ours, **changed}, "gem": gem}

    assert missed_bars(figures()) == []
    assert len(missed_bars(figures(answers_per_s=29.0))) == 1
    assert len(missed_bars(figures(correct=0.99))) == 1
    assert len(missed_bars(figures(code_s=0.13))) == 1
    assert len(missed_bars(figures(code_wrong_s=0.13))) == 1
    mix = module["mix"](3, 1_000)
    assert 550 < sum(equal for *_, equal in mix) < 650
    assert module["mix"](3, 1_000) == mix

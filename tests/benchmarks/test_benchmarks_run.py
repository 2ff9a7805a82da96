"""Test that the benchmarks run and their exit codes match their output. Timings are not checked."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from palestra.conformance import Rate

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GUESS = "game:GuessTheNumber-v0-easy"


def run(script: str, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *options], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout


@pytest.mark.slow
def test_env_step_runs_without_gem() -> None:
    code, text = run("env_step.py", "--no-gem", "--quick", "--games", GUESS, "TowerofHanoi-v0-hard", "--json")
    report = json.loads(text)
    assert code == bool(report["missed"])
    assert list(report["games"]) == [GUESS, "game:TowerofHanoi-v0-hard"]
    for figures in report["games"].values():
        ours = figures["ours"]
        assert ours["unread"] == 0.0
        assert ours["steps"] > 0
        assert all(ours[name] > 0 for name in ("step_us", "reset_us", "reset_p99_us", "make_us", "fork_us"))
        assert ours["hostile"]["ns"] > 0
    assert report["import"]["palestra"]["ms"] > 0


@pytest.mark.slow
def test_env_step_prints_a_table() -> None:
    code, text = run("env_step.py", "--no-gem", "--quick", "--games", GUESS)
    assert GUESS in text
    assert ("all targets are met" in text) == (code == 0)


@pytest.mark.slow
def test_layouts_are_compared() -> None:
    code, text = run("layouts.py", "--tokens", "20", "40", "--repeats", "1")
    assert code == 0  # the target is about longer samples
    assert text.count("ratio") == 2


@pytest.mark.slow
def test_rates_are_measured_and_compared_with_the_stated_ones() -> None:
    code, text = run("rates.py", "--ids", GUESS, "--seeds", "300", "--json")
    expert, random, echo, constant = json.loads(text)
    assert code == 0
    assert (expert["solved"], expert["episodes"], expert["stated"]) == (300, 300, 1.0)
    assert random["interval"][0] < random["solved"] / 300 < random["interval"][1]
    assert [echo["player"], constant["player"]] == ["echo", "constant"]


@pytest.mark.slow
def test_rates_print_a_table() -> None:
    code, text = run("rates.py", "--ids", GUESS, "--seeds", "30")
    assert text.count(GUESS) == 4
    assert code == ("OUTSIDE" in text)


def test_env_step_bars() -> None:
    missed = runpy.run_path(str(BENCHMARKS / "env_step.py"))["missed_bars"]
    ours = {"make_us": 9.0, "reset_p99_us": 9.0, "fork_us": 9.0, "hostile": {"ns": 9, "action": "x"}}
    cost = {"ms": 1.0, "mb": 1.0}

    def report(ratio: float = 3.0, cost: dict[str, float] = cost, **changed: Any) -> dict[str, Any]:
        return {"games": {"a": {"ours": {**ours, **changed}, "step_ratio": ratio}}, "import": {"palestra": cost}}

    assert missed(report()) == []
    assert len(missed(report(1.5))) == 1  # the median ratio is below 2
    assert len(missed(report(0.5))) == 2
    assert len(missed(report(make_us=1e3))) == 1
    assert len(missed(report(reset_p99_us=2e4))) == 1
    assert len(missed(report(fork_us=50))) == 1
    assert len(missed(report(hostile={"ns": 5e7, "action": "x"}))) == 1
    assert len(missed(report(cost={"ms": 30.0, "mb": 1.0}))) == 1
    assert len(missed(report(cost={"ms": 1.0, "mb": 3.0}))) == 1
    assert missed({"games": {"a": {"error": "failed"}}, "import": {"palestra": cost}}) == ["a: failed"]


def test_a_stated_rate_agrees_within_the_interval() -> None:
    agrees = runpy.run_path(str(BENCHMARKS / "rates.py"))["agrees"]
    assert agrees(None, Rate(1, 2), "random")
    assert agrees(1.0, Rate(50, 50), "random")
    assert not agrees(1.0, Rate(9_999, 10_000), "random")
    assert agrees(0.34, Rate(3_446, 10_000), "random")
    assert not agrees(0.30, Rate(3_446, 10_000), "random")
    assert agrees(0.0, Rate(0, 10), "random")
    assert agrees(0.3, Rate(0, 100), "echo")  # a short measurement may miss the best strategy
    assert not agrees(0.1, Rate(50, 100), "constant")


def test_rates_print_entries_for_catalogs() -> None:
    code, text = run("rates.py", "--ids", GUESS, "--seeds", "10", "--table")
    assert code == 0
    assert re.fullmatch(r'    "GuessTheNumber-v0-easy": \(0\.\d+, 0\.\d+\),\n', text)


@pytest.mark.slow
def test_tools_runs_without_gem() -> None:
    code, text = run("tools.py", "--no-gem", "--quick", "--json")
    report = json.loads(text)
    assert code == bool(report["missed"])
    assert all(report["ours"][name] > 0 for name in ("calls_per_s", "latency_ms", "first_s", "cell_ms"))
    assert "gem" not in report


def test_tools_bars() -> None:
    bars = runpy.run_path(str(BENCHMARKS / "tools.py"))["missed_bars"]
    ours = {"calls_per_s": 400.0, "latency_ms": 4.0, "cell_ms": 0.1, "first_s": 0.2}
    assert bars({"ours": ours, "gem": {"calls_per_s": 100.0, "latency_ms": 16.0}}) == []
    assert len(bars({"ours": ours, "gem": {"calls_per_s": 101.0, "latency_ms": 15.0}})) == 2
    assert len(bars({"ours": {**ours, "cell_ms": 2.0, "first_s": 2.0}})) == 2
    usage = {"processes": 10, "files": 5, "own_mb": 10.0, "template_mb": 10.0}
    assert bars({"ours": ours, "growth": {"before": usage, "after": usage}}) == []
    assert len(bars({"ours": ours, "growth": {"before": usage, "after": {**usage, "files": 6, "own_mb": 11.0}}})) == 2

"""Test that benchmarks/sciworld.py runs, with and without `--collect`, and leaves no Java process behind."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCIWORLD = str(Path(__file__).parents[2] / "benchmarks" / "sciworld.py")


@pytest.mark.slow
def test_the_sciworld_benchmark_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = runpy.run_path(SCIWORLD)
    measured: dict[str, list[float]] = {"wait": [], "step": [], "megabytes": []}
    module["play_resets"]("sciworld:Find-v0", 2, 0.0, measured, None)
    assert [len(measured[name]) for name in ("wait", "megabytes")] == [2, 2]
    monkeypatch.setattr(sys, "argv", [SCIWORLD, "--episodes", "2", "--id", "sciworld:Find-v0", "--collect"])
    module["main"]()
    output = capsys.readouterr().out
    assert "wait       median" in output
    assert "2 episodes, " in output
    assert "0 left after close" in output

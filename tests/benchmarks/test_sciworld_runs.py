"""Test that benchmarks/sciworld.py runs, with and without `--collect`, and leaves no Java process behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCIWORLD = Path(__file__).parents[2] / "benchmarks" / "sciworld.py"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--alone", "--collect"])
def test_the_sciworld_benchmark_runs(how: str) -> None:
    command = [sys.executable, str(SCIWORLD), "--episodes", "3", "--id", "sciworld:Find-v0", how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "wait       median" in done.stdout
    assert "3 episodes, 1 Java process(es), 0 left after close" in done.stdout

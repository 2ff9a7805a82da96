"""Test the parts of benchmarks/worlds.py that need no AgentGym checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WORLDS = Path(__file__).parents[2] / "benchmarks" / "worlds.py"


def run(*args: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "AGENTGYM"}
    done = subprocess.run([sys.executable, WORLDS, *args], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_budgets_are_measured() -> None:
    assert "expert 1.000" in run("--budgets", "3", "--levels", "GoToObjS6")


def test_nothing_is_measured_without_a_checkout() -> None:
    assert "nothing measured" in run()

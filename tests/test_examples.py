"""Run the scripts and notebooks in examples/ at a tiny size."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import warm_process

ROOT = Path(__file__).parents[1]
MAX_LINES = 60
SCRIPTS = {  # script -> arguments for a tiny run, and a part of the expected output
    "clone_an_expert.py": (["8"], "success"),
    "evaluate_and_compare.py": (["20"], "points ["),
    "own_data.py": (["1"], "success on held-out questions"),
    "remote_environments.py": (["4"], " episodes finished on http"),
    "tool_agent.py": ([], "agent, reward 1"),
}
ELSEWHERE = {"custom_training.py"}  # tests/training/test_api.py runs it


def run(command: list[str], folder: Path) -> str:
    done = warm_process.run([sys.executable, *command], cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str, tmp_path: Path) -> None:
    arguments, expected = SCRIPTS[name]
    assert expected in run([str(ROOT / "examples" / name), *arguments], tmp_path)


def test_every_script_is_tested_and_short() -> None:
    scripts = {path.name: path for path in (ROOT / "examples").glob("*.py")}
    assert set(scripts) == set(SCRIPTS) | ELSEWHERE
    assert [name for name, path in scripts.items() if len(path.read_text().splitlines()) >= MAX_LINES] == []


@pytest.mark.parametrize("name", ["first_steps", "train_an_agent"])
def test_notebook(name: str, tmp_path: Path) -> None:
    notebook = ROOT / "examples" / f"{name}.ipynb"
    assert "cells" in run([str(ROOT / "scripts" / "run_notebook.py"), str(notebook)], tmp_path)
    stored = json.loads(notebook.read_text())
    shown = [output for cell in stored["cells"] for output in cell.get("outputs", ())]
    assert sum("text/html" in output.get("data", {}) for output in shown) >= 2  # outputs are stored for readers

"""Test that `palestra new-env` writes a package whose environment passes all checks as written."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from palestra.cli import main

ROOT = Path(__file__).parents[2]


def test_new_package_passes_its_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-env", "my-puzzles", "--out", str(tmp_path)]) == 0
    assert "palestra check my_puzzles:MyPuzzles" in capsys.readouterr().out
    folder = tmp_path / "my-puzzles"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["palestra.envs"] == {"mypuzzles": "my_puzzles"}
    code = (
        "import sys; sys.path[:0] = ['.', sys.argv[1]]\n"
        "import pytest; from palestra.cli import main\n"
        "assert main(['check', 'mypuzzles:MyPuzzles-v0', '--import', 'my_puzzles']) == 0\n"
        "assert main(['check', 'my_puzzles:MyPuzzles']) == 0\n"
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_existing_folders_and_bad_names_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    assert main(["new-env", "mine", "--out", str(tmp_path)]) == 2
    assert "already exists" in capsys.readouterr().err
    for name in ("My Env", "class", "1st", "../up"):
        assert main(["new-env", name, "--out", str(tmp_path)]) == 2
        assert "cannot be the name of a package" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_completion_scripts_contain_verbs_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh"):
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert "search-index" in script
        assert "--group-size" in script

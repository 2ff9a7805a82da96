"""The recipes run, at tiny size, and leave what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from palestra.train.config import from_mapping, read_recipe

RECIPES = Path(__file__).parent.parent / "recipes"
TINY = {"seeds": 1, "jobs": 2, "steps": 2, "episodes": 32, "eval-episodes": 16, "warm-start": 64}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("script", "only", "leaves"),
    [
        ("compare.py", ["rebn"], ["table.md", "curves.png"]),
        ("discount.py", ["gamma 0.9"], ["table.md", "turns.png"]),
        ("scaling_inter.py", ["short (2)"], ["table.md", "curves.png"]),
    ],
)
def test_an_experiment(script: str, only: list[str], leaves: list[str], tmp_path: Path) -> None:
    sizes = [f"--{name}={value}" for name, value in TINY.items()]
    command = [sys.executable, str(RECIPES / script), "--out", str(tmp_path), *sizes, "--only", *only]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert only[0] in done.stdout
    assert all((tmp_path / name).stat().st_size > 0 for name in leaves)
    if script == "scaling_inter.py":
        spent = re.search(r"short \(2\): ([\d,]+) ", done.stdout)
        assert spent is not None
        # 2 steps of 32 episodes, of at most 2 replies of 1 to 16 tokens each
        assert 2 * 32 <= int(spent[1].replace(",", "")) <= 2 * 32 * 2 * 16


@pytest.mark.parametrize("recipe", sorted(path.name for path in RECIPES.rglob("*.toml")))
def test_a_recipe_is_a_config(recipe: str) -> None:
    (path,) = RECIPES.rglob(recipe)
    from_mapping(read_recipe(path))

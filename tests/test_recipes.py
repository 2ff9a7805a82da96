"""Test that the recipe scripts run at a tiny size and write their tables and plots."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from palestra.training.recipe import from_mapping, read_recipe
from tests import warm_process

RECIPES = Path(__file__).parent.parent / "recipes"
TINY = {"seeds": 1, "jobs": 2, "steps": 2, "episodes": 16, "eval-episodes": 8, "warm-start": 16}

pytestmark = pytest.mark.slow


def run(script: str, out: Path, only: str) -> str:
    """Run a recipe script and return its output. Its training runs use forks of a warm process."""
    sizes = [f"--{name}={value}" for name, value in TINY.items()]
    stdout = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout):
        patch.setattr(sys, "argv", [script, "--out", str(out), *sizes, "--only", only])
        patch.syspath_prepend(str(RECIPES))
        patch.setattr(subprocess, "run", warm_process.run)
        runpy.run_path(str(RECIPES / script), run_name="__main__")
    assert only in stdout.getvalue()
    return stdout.getvalue()


def left(out: Path, *names: str) -> bool:
    return all((out / name).stat().st_size > 0 for name in names)


@pytest.fixture(scope="module")
def discount(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run discount.py and return its output folder; the other tests reuse its initial model."""
    out = tmp_path_factory.mktemp("discount")
    run("discount.py", out, "gamma 0.9")
    return out


def test_discount(discount: Path) -> None:
    assert left(discount, "table.md", "turns.png")


def test_compare(discount: Path, tmp_path: Path) -> None:
    shutil.copytree(discount / "start-1", tmp_path / "several-turns" / "start-1")
    run("compare.py", tmp_path, "rebn")
    assert (tmp_path / "one-turn" / "start-1" / "config.json").exists()
    assert left(tmp_path, "table.md", "curves.png")


def test_scaling_inter_reuses_an_initial_model(discount: Path, tmp_path: Path) -> None:
    weights = discount / "start-1" / "model.safetensors"
    shutil.copytree(weights.parent, tmp_path / "start-1")
    said = run("scaling_inter.py", tmp_path, "short (2)")
    assert (tmp_path / "start-1" / weights.name).read_bytes() == weights.read_bytes()
    assert left(tmp_path, "table.md", "curves.png")
    spent = re.search(r"short \(2\): ([\d,]+) ", said)
    assert spent is not None
    # 2 steps of 16 episodes with at most 2 replies of 1 to 16 tokens each
    assert 2 * 16 <= int(spent[1].replace(",", "")) <= 2 * 16 * 2 * 16


@pytest.mark.parametrize("recipe", sorted(path.name for path in RECIPES.rglob("*.toml")))
def test_a_recipe_is_a_config(recipe: str) -> None:
    (path,) = RECIPES.rglob(recipe)
    from_mapping(read_recipe(path))


def test_the_table_of_runs_with_default_settings_is_generated_from_the_data(tmp_path: Path) -> None:
    module = runpy.run_path(str(RECIPES / "papers" / "stability.py"))
    rows = module["results"]()
    assert rows
    page = tmp_path / "experiments.md"
    page.write_text(module["PAGE"].read_text())
    module["write_page"](page, module["tables"](rows))
    assert page.read_text() == module["PAGE"].read_text(), "run: python recipes/papers/stability.py --table"
    for game in module["GAMES"]:
        config = from_mapping(module["settings_of"](game, 101, workers=None, given={}))
        assert config.optimizer.lr == from_mapping({"env": "game:A-v0"}).optimizer.lr, "no game has its own rate"

"""Test the navigation of the docs site and the scripts that generate its pages; `make docs` builds the site."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import palestra

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def script(name: str) -> ModuleType:
    """Import a file in scripts/, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    return script("docs_gallery")


def test_every_page_is_in_the_navigation_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"(?:^| )([\w./-]+\.md)$", nav, re.M)
    outside = {"SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("**/*.md")}
    written = {page for page in pages if not page.startswith("generated/")}
    assert sorted(page for page in listed if not page.startswith("generated/")) == sorted(written | outside)


def test_the_gallery_lists_every_family_and_id(gallery: ModuleType) -> None:
    families = gallery.families()
    index = gallery.index_page(families)
    for family, specs in families.items():
        assert f"({family}.md)" in index
        table = gallery.rates_table(specs)
        assert all(f"`{spec.id}`" in table for spec in specs)
    assert sum(map(len, families.values())) == len(palestra.list_envs())


def test_a_gallery_page_shows_prompt_episode_and_rates(gallery: ModuleType, tmp_path: Path) -> None:
    spec = palestra.get_spec("game:GuessTheNumber-v0-easy")
    page = gallery.family_page("game", [spec], tmp_path)
    assert "You are playing Guess the Number." in page
    assert "success: True" in page
    assert f"| `{spec.id}` | 1.000 |" in page


def test_generated_pages_come_from_the_data_files(gallery: ModuleType, tmp_path: Path) -> None:
    pages = script("docs_pages")
    tables = tomllib.loads((DOCS / "data" / "benchmarks.toml").read_text())
    rows = [row for area in tables["area"] for row in area["row"]]
    page = pages.benchmarks_page(tables)
    for row in rows:
        assert (ROOT / row["script"].split()[0]).exists()
        assert row["result"] in page


def test_a_chart_of_learning_curves_names_the_seeds_with_default_settings_only(
    gallery: ModuleType, tmp_path: Path
) -> None:
    def run(seed: int, label: str, target: float = 0.9) -> dict[str, Any]:
        success = [] if seed == 3 else [[0, 0.25], [5, 0.5]]
        settings = {"game": "demo", "env": "game:GuessTheNumber-v0-easy", "model": "default:0.1M", "target": target}
        return {**settings, "seed": seed, "label": label, "success": success}

    pages = script("docs_pages")
    runs = [run(1, "earlier", 0.8), run(2, "defaults"), run(2, "defaults"), run(3, "defaults"), run(4, "variant")]
    page = pages.curves_page(runs, tmp_path)
    assert "all 5 runs" in page
    assert "`game:GuessTheNumber-v0-easy`, default:0.1M, target 90%" in page
    assert "![Success rate by step, demo](curves-demo.svg)" in page

    def names(chart: str) -> list[str]:
        return re.findall("<!-- (seed.*|other.*|target) -->", (tmp_path / chart).read_text())

    assert names("curves-demo.svg") == ["other settings", "seed 2", "target"]
    pages.draw_curves(runs[:1], tmp_path / "earlier.svg")
    assert names("earlier.svg") == ["seed 1, earlier", "target"]


def test_the_reference_lists_the_public_names() -> None:
    script("docs_gallery")
    pages = script("docs_pages")
    page = pages.reference_page("palestra")
    assert "        - make\n" in page
    assert "        - agents\n" not in page  # a package, which has its own page
    assert "        - ChatAgent\n" in pages.reference_page("palestra.agents")

"""Test the navigation of the docs site and the scripts that generate its pages; `make docs` builds the site."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

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
    written = script("docs_tables")
    pages = script("docs_pages")
    assert written.with_tables(written.PAGE.read_text()) == written.PAGE.read_text()
    tables = tomllib.loads((DOCS / "data" / "benchmarks.toml").read_text())
    rows = [row for area in tables["area"] for row in area["row"]]
    page = pages.benchmarks_page(tables)
    for row in rows:
        assert (ROOT / row["script"].split()[0]).exists()
        assert row["result"] in page
    run = {
        "game": "demo",
        "seed": 1,
        "label": "",
        "env": "game:GuessTheNumber-v0-easy",
        "model": "default:0.1M",
        "steps": 5,
        "success": [[0, 0.25], [5, 0.5]],
        "target": 0.9,
        "seconds": 3,
        "ended": "finished",
    }
    results = pages.results_page([run], tmp_path)
    assert "| defaults | 1 | 25.0% | 50.0% | 5 |" in results
    assert all(written.markdown(table) in results for table in written.tables())
    assert (tmp_path / "results-demo.svg").read_text().count("<svg") == 1


def test_the_reference_lists_the_public_names() -> None:
    script("docs_gallery")
    script("docs_tables")
    pages = script("docs_pages")
    page = pages.reference_page("palestra")
    assert "        - make\n" in page
    assert "        - agents\n" not in page  # a package, which has its own page
    assert "        - ChatAgent\n" in pages.reference_page("palestra.agents")

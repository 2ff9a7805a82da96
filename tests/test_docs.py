"""What README and docs show is run, and does what they say."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, code) of every fenced block of that language."""
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.S | re.M)
    return [(page.name, code) for page in PAGES for code in fence.findall(page.read_text())]


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_python_blocks_run_in_order(page: str, tmp_path: Path) -> None:
    code = "\n".join(code for name, code in blocks("python") if name == page)
    if not code:
        return
    if "my_package" in code:  # the page registers a class it defined above under a module name of the reader's
        package = tmp_path / "my_package"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "higher_lower.py").write_text(code.split("print(check_env")[0])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for _, code in blocks("") for line in code.splitlines()]
    return [line for line in lines if line.startswith("palestra ")]


@pytest.mark.parametrize("line", commands())
def test_commands_run(line: str, tmp_path: Path) -> None:
    args = shlex.split(line)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "palestra", *args], cwd=tmp_path, input="", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_two_commands_stand_at_the_top() -> None:
    top = (ROOT / "README.md").read_text().splitlines()[:12]
    assert any(line.startswith("make demo") for line in top)
    assert any(line.startswith("make test") for line in top)

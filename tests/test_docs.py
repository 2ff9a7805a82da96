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
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
    found = [(page.name, *match.groups()) for page in PAGES for match in fence.finditer(page.read_text())]
    return [(page, code) for page, kind, code in found if kind == language]


def commands(page: str) -> list[list[str]]:
    """What a reader types, without what takes minutes (smollm2 has a test of its own)."""
    lines = [line.split("#")[0].strip() for name, code in blocks("") if name == page for line in code.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("palestra ") and "smollm2" not in line]


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_a_page_works_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    for args in commands(page):
        done = subprocess.run(
            [sys.executable, "-m", "palestra", *args],
            cwd=tmp_path,
            input="",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{args}: {done.stderr}"
    code = "\n".join(code for name, code in blocks("python") if name == page)
    if "my_package" in code:  # the page registers a class it defined above under a module name of the reader's
        package = tmp_path / "my_package"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "higher_lower.py").write_text(code.split("print(check_env")[0])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_two_commands_stand_at_the_top() -> None:
    top = (ROOT / "README.md").read_text().splitlines()[:12]
    assert any(line.startswith("make demo") for line in top)
    assert any(line.startswith("make test") for line in top)

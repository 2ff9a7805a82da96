"""Run the commands and code blocks in README and docs."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from palestra.cli import build_parser, main
from palestra.training.recipe import make_section
from palestra.training.sections import SECTIONS
from tests import warm_process

ROOT = Path(__file__).parent.parent
GENERATED = ROOT / "docs" / "generated"  # written by `make docs`
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("**/*.md")) if GENERATED not in page.parents),
]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


def blocks(language: str) -> list[tuple[str, str, str]]:
    """Return (page, title, code) for every fenced block in `language`; most blocks have no title."""
    fence = re.compile(r'^```(\w*)(?: title="([^"]*)")?\n(.*?)^```$', re.S | re.M)
    return [
        (name_of(page), match[2] or "", match[3])
        for page in PAGES
        for match in fence.finditer(page.read_text())
        if match[1] == language
    ]


def commands(page: str) -> list[list[str]]:
    """Return the palestra commands on a page, except the slow ones with smollm2, which are tested elsewhere."""
    lines = [line.split("#")[0].strip() for name, _, code in blocks("") if name == page for line in code.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("palestra ") and "smollm2" not in line]


def run_command(args: list[str], folder: Path) -> tuple[int, str]:
    """Run a command and return its exit code and standard error; commands that need torch run in this process."""
    if args[0] in ("init-model", "train") and "--help" not in args:
        stderr = StringIO()
        with chdir(folder), redirect_stdout(StringIO()), redirect_stderr(stderr):
            return main(args), stderr.getvalue()
    command = [sys.executable, "-m", "palestra", *args]
    done = warm_process.run(command, cwd=folder, capture_output=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize("page", [name_of(page) for page in PAGES])
def test_page_examples_run(page: str, tmp_path: Path) -> None:
    for args in commands(page):
        code, stderr = run_command(args, tmp_path)
        assert code == 0, f"{args}: {stderr}"
    shown = "\n".join(code for name, _, code in blocks("python") if name == page)
    if "my_package" in shown:  # the page registers a class from an example package
        package = tmp_path / "my_package"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "higher_lower.py").write_text(shown.split("print(check_env")[0])
    done = warm_process.run([sys.executable, "-c", shown], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_links_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{name_of(page)}: {target}"


def test_shell_examples_have_valid_options() -> None:
    parser = build_parser()
    for page, _, code in blocks("sh"):
        for line in code.replace("\\\n", " ").splitlines():
            for command in line.split("#")[0].split("&&"):
                words = shlex.split(command)
                if words[:1] != ["palestra"] or "--help" in words:
                    continue
                try:
                    _, unknown = parser.parse_known_args(words[1:])
                except SystemExit:
                    unknown = ["invalid value"]
                assert not unknown, f"{page}: {line}: {unknown}"


def test_blocks_that_are_not_run_are_marked() -> None:
    assert all(title.startswith("needs ") for _, title, _ in blocks("py"))
    for page, title, code in blocks("sh"):
        for line in code.replace("\\\n", " ").splitlines():
            command, _, comment = line.partition("#")
            runs = not title and "needs " not in comment
            assert not (runs and re.search(r"Qwen/|--ray|^ray |vllm|sglang", command)), f"{page}: {line}"


def test_recipes_in_docs_are_valid() -> None:
    for _, _, code in blocks("toml"):
        data = tomllib.loads(code)
        if all(isinstance(table, dict) for table in data.values()) and data.keys() <= {*SECTIONS, "algorithm"}:
            for name in data.keys() & SECTIONS.keys():
                make_section(name, data[name])


def test_readme_starts_with_the_two_commands() -> None:
    top = (ROOT / "README.md").read_text().splitlines()[:12]
    assert any(line.startswith("make demo") for line in top)
    assert any(line.startswith("make test") for line in top)

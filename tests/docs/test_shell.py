"""Run the shell commands in README and docs, in the order of each page and at a small size.

Blocks whose title starts with "needs" or "takes", lines whose comment contains "needs", and `pip install` are not run,
because they need a GPU, an external service or several hours.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_docs import ROOT, blocks

TINY = {  # options that are appended to the command of a verb
    "train": "--steps 1 --episodes 8 --warm-start 16 --eval-episodes 4",
    "eval": "-n 2",
}
SERVERS = {"view": "--port 0", "serve": "--port 0", "search-serve": "--port 0"}
ENVIRONMENT = """
import palestra
from palestra.envs.games.guess_the_number import GuessTheNumber

class MyEnv(GuessTheNumber):
    def __init__(self, max_turns=4):
        super().__init__(max_turns=max_turns)

palestra.register("my:Env-v0", MyEnv)
"""


def marked(text: str) -> bool:
    return text.startswith(("needs", "takes"))


def commands(page: str) -> Iterator[str]:
    """Yield the commands in a page's `sh` blocks that are not marked as needing something."""
    for title, code in shell_blocks(page):
        if marked(title):
            continue
        if "<<" in code or "$(" in code:  # a script
            yield "\n".join(line for line in code.splitlines() if not line.startswith("pip install"))
            continue
        for line in code.replace("\\\n", " ").splitlines():
            command, _, comment = line.partition("#")
            if command.strip() and "needs " not in comment and not command.startswith("pip install"):
                yield command.strip()


def shell_blocks(page: str) -> list[tuple[str, str]]:
    return [(title, code) for name, title, code in blocks("sh") if name == page]


def pages() -> list[str]:
    names = dict.fromkeys(name for name, _, _ in blocks("sh"))
    return [name for name in names if any(commands(name))]


def prepare(page: str, folder: Path) -> None:
    """Write the files that a page's commands name: recipes, a trained model, and the page's own Python code."""
    (folder / "recipes").symlink_to(ROOT / "recipes")
    (folder / "recipe.toml").write_text((ROOT / "recipes" / "guess_the_number.toml").read_text())
    (folder / "tokens.txt").write_text("a-secret-token\n")
    package = folder / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "envs.py").write_text(ENVIRONMENT)
    python = [code for name, _, code in blocks("python") if name == page]
    files = {
        "algorithms.md": {"my_package/hooks.py": "def shorter_is_better", "my_package/regret.py": "class Regret"},
        "tutorials/own-environment.md": {"my_words.py": "class Plural"},
        "tutorials/write-an-algorithm.md": {"my_algorithms.py": "class BestOfOthers"},
    }
    for file, text in files.get(page, {}).items():
        (folder / file).write_text(next(code for code in python if text in code))
    if page == "tutorials/own-environment.md":
        with (folder / "my_words.py").open("a") as file_:
            file_.write('\npalestra.register("words:Plural-v0", Plural)\n')
    if page == "search.md":
        run("palestra search-index --embedded --out facts.index", folder)
    if any("runs/trained" in command or command.startswith("palestra view runs/a") for command in commands(page)):
        for name in ("trained", "a"):
            run(f"palestra train --env game:GuessTheNumber-v0-easy --out runs/{name} {TINY['train']}", folder)


def run(command: str, folder: Path) -> None:
    words = shlex.split(command) if "\n" not in command else []
    verb = words[words.index("palestra") + 1] if "palestra" in words else ""
    if verb in SERVERS:
        start_and_stop(f"{command} {SERVERS[verb]}", folder)
        return
    done = subprocess.run(
        ["bash", "-euc", f"{command} {TINY.get(verb, '')}"],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def start_and_stop(command: str, folder: Path) -> str:
    """Start a server, read its first line, and press Ctrl-C."""
    variable = "=" in command.split()[0]
    with subprocess.Popen(
        ["bash", "-euc", f"export {command.replace(' ', '; exec ', 1)}" if variable else f"exec {command}"],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate()
    assert "http://" in line, f"{command}\n{line}{errors}"
    assert "Traceback" not in errors
    return line


def environment(folder: Path) -> dict[str, str]:
    """Return environment variables with which `palestra` and `python` run this checkout."""
    tools = folder / ".bin"
    if not tools.exists():
        tools.mkdir()
        (tools / "palestra").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m palestra "$@"\n')
        (tools / "palestra").chmod(0o755)
        (tools / "python").symlink_to(sys.executable)
    path = os.pathsep.join((str(ROOT), str(folder)))
    return {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}


def test_the_marks_are_known() -> None:
    titles = {title for name in {name for name, _, _ in blocks("sh")} for title, _ in shell_blocks(name) if title}
    assert all(marked(title) for title in titles)


@pytest.mark.parametrize("page", pages())
def test_commands_run(page: str, tmp_path: Path) -> None:
    prepare(page, tmp_path)
    for command in commands(page):
        if "localhost:8100" in command:
            with_server(command, tmp_path)
        else:
            run(command, tmp_path)


def with_server(script: str, folder: Path) -> None:
    """Run a script of requests against a server on a free port."""
    command = ["palestra", "serve", "game:Wordle-v0-hard", "--port", "0", "--workers", "1"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        address = re.search(r"http://([\w.:]+)", server.stdout.readline())
        try:
            assert address is not None
            script = script.replace("localhost:8100", address[1]).replace("curl", "curl -sS --fail-with-body")
            replies = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=folder,
                env=environment(folder),
                capture_output=True,
                text=True,
                check=False,
            )
            assert replies.returncode == 0, replies.stdout + replies.stderr
            assert "crane" in replies.stdout.lower()
        finally:
            server.send_signal(signal.SIGINT)

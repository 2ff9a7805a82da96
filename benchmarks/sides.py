"""Two sides of a comparison, each in a process of its own, that work in turns: the driver's half and the side's.

A driver starts `python NAME_side.py SIDE` and asks for one thing at a time, a JSON line each way. Standard library
only: the sides run under the interpreters of the peers too.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
GEM_HOME = HERE.parent / ".cache" / "gem-venv"
GEM_PACKAGES = ["gem-llm==0.1.0", "pandas"]  # its crosswords import pandas without saying so


class SideFailed(Exception):
    """A side raised or ended; `args` are its name and why."""


class Child:
    """A side in its process. `quiet`: what it writes to standard error is not shown."""

    def __init__(
        self, python: str, script: str, name: str, *, env: Mapping[str, str] | None = None, quiet: bool = False
    ) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [python, str(HERE / script), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            text=True,
            env=None if env is None else dict(env),
        )

    def ask(self, do: str, **command: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **command}) + "\n")
        self.process.stdin.flush()
        return self.hear(do)

    def hear(self, do: str) -> Any:
        """The next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SideFailed(self.name, f"ended with {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise SideFailed(self.name, f"{do}: {answer['error']}")
        return answer["ok"]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def answer_all(make: Callable[[], Any]) -> Any:
    """A side's half: do what is asked, by the methods of what `make` makes, until the driver hangs up; gives that."""
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # whatever a package prints must not mix with the answers
        side = make()
        for line in sys.stdin:
            command = json.loads(line)
            try:
                answer = {"ok": getattr(side, command.pop("do"))(**command)}
            except Exception as err:  # noqa: BLE001  # the driver shows it
                answer = {"error": f"{type(err).__name__}: {err}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    return side


def installed(home: Path, *packages: str) -> str:
    """The interpreter of a virtual environment with these packages; made when there is none."""
    python = home / "bin" / "python"
    ready = home / ".ready"
    if not ready.exists():
        print(f"installing {' and '.join(packages)} into {home} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        ready.touch()
    return str(python)


def gem_python() -> str:
    """GEM's interpreter."""
    return installed(GEM_HOME, *GEM_PACKAGES)


def first_on_path(python: str) -> dict[str, str]:
    """An environment in which `python` is this one: GEM runs whatever is called that."""
    return {**os.environ, "PATH": f"{Path(python).parent}{os.pathsep}{os.environ.get('PATH', '')}"}

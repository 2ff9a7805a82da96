"""Child processes for benchmarks that compare two implementations.

The driver starts `python NAME_side.py SIDE` for each implementation and sends one command at a time; commands and
replies are single JSON lines. Only the standard library is used, because the sides also run in the other packages'
interpreters.
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
GEM_PACKAGES = ["gem-llm==0.1.0", "pandas"]  # GEM's crosswords need pandas, which GEM does not declare as a dependency


class SideFailed(Exception):
    """Raised if a side raises an exception or exits; `args` are its name and the reason."""


class Child:
    """One side in a child process; `quiet` discards its standard error."""

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

    def request(self, do: str, **command: Any) -> Any:
        """Send the command `do` with its arguments and return the result."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **command}) + "\n")
        self.process.stdin.flush()
        return self.read_reply(do)

    def read_reply(self, do: str) -> Any:
        """Return the next reply; `do` names the command in errors."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SideFailed(self.name, f"exited with {self.process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise SideFailed(self.name, f"{do}: {reply['error']}")
        return reply["ok"]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def serve_commands(make: Callable[[], Any]) -> Any:
    """Create a side with `make`, run the commands from standard input on it until the end of input, and return it."""
    replies = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # print statements in packages must not mix with the replies
        side = make()
        for line in sys.stdin:
            command = json.loads(line)
            try:
                reply = {"ok": getattr(side, command.pop("do"))(**command)}
            except Exception as err:  # noqa: BLE001  # the error is sent to the driver, which reports it
                reply = {"error": f"{type(err).__name__}: {err}"}
            replies.write(json.dumps(reply) + "\n")
            replies.flush()
    return side


def python_with(home: Path, *packages: str) -> str:
    """Return the interpreter in the virtual environment `home`; create it with these packages if necessary."""
    python = home / "bin" / "python"
    ready = home / ".ready"
    if not ready.exists():
        print(f"installing {' and '.join(packages)} into {home} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        ready.touch()
    return str(python)


def gem_python() -> str:
    """Return the interpreter in the virtual environment with GEM."""
    return python_with(GEM_HOME, *GEM_PACKAGES)


def first_on_path(python: str) -> dict[str, str]:
    """Return environment variables with this interpreter first on PATH, because GEM runs the `python` command."""
    return {**os.environ, "PATH": f"{Path(python).parent}{os.pathsep}{os.environ.get('PATH', '')}"}

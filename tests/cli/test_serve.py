"""Test the `palestra serve` command, and `palestra.server.serve` in a script."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

import palestra
from palestra.cli import main
from palestra.errors import BadValue
from palestra.server import serve

TOKEN = "0123456789abcdef"


@contextmanager
def started(command: list[str], cwd: Path | None = None) -> Iterator[str]:
    """Run a server and yield its URL; after SIGTERM, it must exit with code 0."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=cwd)
    assert process.stdout is not None
    with process.stdout:
        line = process.stdout.readline()
        try:
            url = re.search(r" at (http://\S+:\d+)", line)
            assert url is not None, line
            yield url[1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_command_serves_until_sigterm(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# clients\nteam {TOKEN}\n")
    options = ["--token-file", str(tokens), "--port", "0", "--workers", "1", "--log-level", "error"]
    with started(["-m", "palestra", "serve", "game:Wordle-v0-hard", "logic:", *options]) as url:
        with pytest.raises(BadValue, match="token"):
            palestra.make(f"{url}/game:Wordle-v0-hard", token="wrong")
        with palestra.make(f"{url}/game:Wordle-v0-hard", token=TOKEN) as env:
            observation, _ = env.reset(seed=1)
            assert observation == palestra.make("game:Wordle-v0-hard").reset(seed=1)[0]
        checked = subprocess.run(
            [sys.executable, "-m", "palestra", "check", url],
            capture_output=True,
            text=True,
            env={"PALESTRA_TOKEN": TOKEN, "PATH": "/usr/bin:/bin"},
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


SCRIPT = """
from palestra.server import serve

if __name__ == "__main__":
    options = {"port": 0, "workers": 1, "log_level": "error"}
    serve("game:GuessTheNumber-v0-easy", on_ready=lambda url: print("serving at", url, flush=True), **options)
"""


def test_serve_in_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with started([str(script)]) as url, palestra.make(f"{url}/game:GuessTheNumber-v0-easy") as env:
        env.reset(seed=1)
        assert isinstance(env.step("\\boxed{5}").observation, str)


def test_serve_refuses_a_running_event_loop() -> None:
    async def call() -> None:
        serve("game:GuessTheNumber-v0-easy")

    with pytest.raises(BadValue, match="running"):
        asyncio.run(call())


def test_invalid_arguments_fail_before_the_server_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PALESTRA_TOKEN", raising=False)
    short = tmp_path / "short"
    short.write_text("abc\n")
    empty = tmp_path / "empty"
    empty.write_text("# no token\n")
    for args, message in (
        (["game:Wordel-v0-hard"], "Did you mean"),
        (["gam:"], "'gam'"),
        (["game:", "--host", "0.0.0.0"], "--token-file"),
        (["game:", "--token-file", str(short)], "at least 8 characters"),
        (["game:", "--token-file", str(empty)], "contains no token"),
        (["game:", "--token-file", str(tmp_path / "none")], "cannot read the token file"),
        (["game:", "--python", "game"], "FAMILY=INTERPRETER"),
        (["game:", "--python", "game=/no/such"], "/no/such does not exist"),
        (["game:", "--workers", "0"], "workers must be at least 1"),
        (["game:", "--lease", "-1"], "lease must be greater than 0"),
        (["game:", "--host", "256.1.1.1", "--token-file", str(tmp_path / "ok")], "cannot"),
    ):
        assert main(["serve", *args]) == 2, args
        assert message in capsys.readouterr().err, args


def test_occupied_port_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    from palestra.sockets import listen

    with listen("127.0.0.1", 0) as listener:
        assert main(["serve", "game:", "--port", str(listener.getsockname()[1])]) == 2
    assert "--port" in capsys.readouterr().err


MODULE = '''
"""User module: one class, and one registered id."""

import palestra


class Echo(palestra.Env):
    """Repeat the last action."""

    def __init__(self, suffix=""):
        self.suffix = suffix

    def reset(self, seed=None, options=None):
        return "Say something.", {"seed": self.start_episode(seed)}

    def step(self, action):
        return action + self.suffix, 1.0, True, False, {"success": True}


palestra.register("mine:Echo-v0", Echo, suffix="!")
'''


def test_user_environments_by_class_and_by_import(tmp_path: Path) -> None:
    (tmp_path / "my_served_envs.py").write_text(MODULE)
    options = ["--import", "my_served_envs", "--port", "0", "--workers", "1", "--log-level", "error"]
    with started(["-m", "palestra", "serve", "my_served_envs:Echo", "mine:", *options], cwd=tmp_path) as url:
        with palestra.make(f"{url}/my_served_envs:Echo", suffix="?") as env:
            env.reset(seed=1)
            assert env.step("hello")[:4] == ("hello?", 1.0, True, False)
        with palestra.make(f"{url}/mine:Echo-v0") as env:
            env.reset(seed=1)
            assert env.step("hello").observation == "hello!"


def test_environment_of_another_server() -> None:
    """Serve an environment by its URL; clients percent-encode this URL and append it to the server's URL."""
    options = ["--port", "0", "--workers", "1", "--log-level", "error"]
    name = "game:GuessTheNumber-v0-easy"
    with (
        started(["-m", "palestra", "serve", name, *options]) as inner,
        started(["-m", "palestra", "serve", f"{inner}/{name}", *options]) as outer,
        palestra.make(f"{outer}/{quote(f'{inner}/{name}', safe='')}") as env,
        palestra.make(name) as local,
    ):
        assert env.reset(seed=3)[0] == local.reset(seed=3)[0]
        assert env.step("\\boxed{5}").observation == local.step("\\boxed{5}").observation

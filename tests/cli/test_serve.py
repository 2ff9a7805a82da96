"""`palestra serve`, as it is typed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import palestra
from palestra.cli import main
from palestra.errors import BadValue


def started(*args: str, env: dict[str, str] | None = None) -> tuple[subprocess.Popen[str], str]:
    command = [
        sys.executable,
        "-m",
        "palestra",
        "serve",
        *args,
        "--port",
        "0",
        "--workers",
        "1",
        "--log-level",
        "error",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://\S+:\d+", line)
    assert found is not None, line
    return process, found[0]


def test_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("# who may\nteam 0123456789abcdef\n")
    process, url = started("game:Wordle-v0-hard", "logic:", "--token-file", str(tokens))
    try:
        with pytest.raises(BadValue, match="token"):
            palestra.make(f"{url}/game:Wordle-v0-hard", token="wrong")
        with palestra.make(f"{url}/game:Wordle-v0-hard", token="0123456789abcdef") as env:
            observation, _ = env.reset(seed=1)
            assert observation == palestra.make("game:Wordle-v0-hard").reset(seed=1)[0]
        checked = subprocess.run(
            [sys.executable, "-m", "palestra", "check", url],
            capture_output=True,
            text=True,
            env={"PALESTRA_TOKEN": "0123456789abcdef", "PATH": "/usr/bin:/bin"},
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert "keeps the protocol" in checked.stdout
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stdout is not None
        process.stdout.close()


def test_what_cannot_be_served_is_said_before_anything_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PALESTRA_TOKEN", raising=False)
    short = tmp_path / "short"
    short.write_text("abc\n")
    empty = tmp_path / "empty"
    empty.write_text("# nobody\n")
    for args, told in (
        (["game:Wordel-v0-hard"], "Did you mean"),
        (["gam:"], "no family 'gam'"),
        (["game:", "--host", "0.0.0.0"], "--token-file"),
        (["game:", "--token-file", str(short)], "at least 8 characters"),
        (["game:", "--token-file", str(empty)], "holds no token"),
        (["game:", "--token-file", str(tmp_path / "none")], "cannot be read"),
        (["game:", "--python", "game"], "FAMILY=INTERPRETER"),
        (["game:", "--python", "game=/no/such"], "there is no /no/such"),
        (["game:", "--workers", "0"], "workers is at least 1"),
        (["game:", "--lease", "-1"], "lease is above 0"),
        (["game:", "--host", "256.1.1.1", "--token-file", str(tmp_path / "ok")], "cannot"),
    ):
        assert main(["serve", *args]) == 2, args
        assert told in capsys.readouterr().err, args


def test_a_taken_port_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    from palestra.sockets import listen

    with listen("127.0.0.1", 0) as held:
        assert main(["serve", "game:", "--port", str(held.getsockname()[1])]) == 2
    assert "choose another" in capsys.readouterr().err

"""Test that commands display their phases, and that they acknowledge Ctrl-C at any time."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest

from palestra.cli import main, terminal
from palestra.cli.terminal import Bars, Lines
from palestra.progress import clock, displayed, phase

GUESS = "game:GuessTheNumber-v0-easy"
SLOW_ENV = """
import time
from palestra.envs.games.guess_the_number import GuessTheNumber

class Slow(GuessTheNumber):
    def reset(self, seed=None, options=None):
        try:
            print("asleep", flush=True)
            time.sleep(600)
        except KeyboardInterrupt:
            time.sleep(600)
"""


class Recorder:
    """Display that stores the texts of the phases."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.running = 0

    def begin(self, text: str, total: int | None) -> None:
        self.texts.append(text if total is None else f"{text} /{total}")
        self.running += 1

    def update(self, key: None, done: int, text: str | None) -> None:
        self.texts += [] if text is None else [text]

    def end(self, key: None) -> None:
        self.running -= 1


def phases_of(commands: Sequence[Sequence[str]]) -> list[str]:
    shown = Recorder()
    with displayed(shown):
        for command in commands:
            assert main(command) == 0
    assert shown.running == 0
    return shown.texts


def test_every_slow_part_of_a_command_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert phases_of([["world", "--pages", "100", "--out", "w.jsonl", "--questions", "q.jsonl", "--each", "1"]]) == [
        "generating the encyclopedia",
        "writing pages /100",
        "writing questions",
    ]
    index = phases_of([["search-index", "w.jsonl", "--out", "i"], ["search", "river", "--index", "i"]])
    assert (index[0], index[-1]) == ("reading passages", "searching")
    assert phases_of([["play", GUESS, "--agent", "expert", "--seed", "1"]]) == [
        f"starting {GUESS}",
        "starting the episode",
    ]
    assert phases_of([["check", GUESS, "--episodes", "1", "--workers", "1"]]) == [f"checking {GUESS}"]
    evaluation = ["eval", GUESS, "--agent", "expert", "-n", "2", "--out"]
    assert "loading" in phases_of([[*evaluation, "a"], [*evaluation, "b"]])
    assert "comparing" in phases_of([["compare", "a", "b"]])
    assert "grading the stored episodes" in phases_of([["rescore", "a", "--out", "c"]])


def read_to_end(controller: int) -> bytes:
    """Return everything written to a pseudo-terminal until its last user closed it; one read may return only a part."""
    data = b""
    try:
        while part := os.read(controller, 65536):
            data += part
    except OSError:  # the terminal has no more users
        pass
    os.close(controller)
    return data


def test_bars_are_drawn_in_a_terminal_and_removed() -> None:
    parent, child = pty.openpty()
    with os.fdopen(child, "w") as terminal, displayed(Bars(terminal)), phase("reading files", 4) as shown:
        shown.count()
        with phase("waiting"):
            pass
    text = read_to_end(parent).decode()
    assert "reading files" in text
    assert "1/4" in text
    assert "waiting" in text
    assert text.rstrip().endswith("\x1b[2K\x1b[?25h")  # the lines are erased, and the cursor is visible


def lines_of(begin: Literal["all", "first", "none"], units: int, *details: str, total: int = 4) -> list[str]:
    out = io.StringIO()
    with displayed(Lines(out, begin=begin)):
        for _ in range(2):
            with phase("reading files", total) as shown:
                for done in range(1, units + 1):
                    shown.update(done, *details)
            with phase("waiting"):
                pass
    return out.getvalue().splitlines()


def test_lines_state_the_progress_of_phases_that_take_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_of("all", 4) == 2 * ["reading files ...", "waiting ..."]
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.0)
    assert lines_of("first", 0) == ["reading files ...", "waiting ..."]
    first = "reading files: 1 of 4 (25%), 5 solved, 0:00, about 0:00 left"
    assert lines_of("none", 1, "5 solved") == 2 * [first]
    assert lines_of("none", 1, total=512) == 2 * ["reading files: 1 of 512 (0%), 0:00"]  # too few to estimate the rest


def test_a_training_log_states_the_progress_of_every_long_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.0)
    run = ["train", "--env", GUESS, "--warm-start", "32", "--warm-batch", "16", "--warm-epochs", "1", "--episodes", "4"]
    run += ["--steps", "1", "--eval-episodes", "4", "--no-store"]
    assert main([*run, "--json", "--out", str(tmp_path / "run")]) == 0
    done = capsys.readouterr()
    assert [json.loads(line).get("step") for line in done.out.splitlines()] == [-1, 0, None]
    lines = re.sub(r", \d:\d\d, about \d:\d\d left", "", done.err).splitlines()
    for line in (
        "warm start: playing episodes: 32 of 32 (100%)",
        "warm start: learning: 1 of 2 (50%)",
        "sampling: 4 of 4 (100%)",
        "evaluating: 4 of 4 (100%)",
    ):
        assert line in lines


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3661, "1:01:01")])
def test_durations_are_formatted(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_every_verb_is_named_in_the_terminal_while_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = pty.openpty()
    with os.fdopen(child, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        assert main(["envs", "sudoku"]) == 0
    line = "palestra envs ..."
    assert read_to_end(parent).decode() == f"{line}\r{' ' * len(line)}\r"


def test_play_wraps_and_colors_its_own_lines_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = pty.openpty()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO(":help\nno number\n"))
    with os.fdopen(child, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        assert main(["play", GUESS, "--seed", "3"]) == 0
    text = read_to_end(parent).decode()
    assert "\x1b[33mYour action could not be read" in text
    lines = re.sub(r"\x1b\[\d+m|> ", "", text).splitlines()  # the input after the prompt is not shown here
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize("args", [["envs"], ["envs", "game:sudoku"], ["eval", "--suites"], ["envs", "game:Sudokku"]])
def test_listings_and_errors_fit_the_terminal(args: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = pty.openpty()
    monkeypatch.setenv("COLUMNS", "60")
    with os.fdopen(child, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(sys, "stderr", terminal)
        main(args)
    lines = read_to_end(parent).decode().rpartition("\r ")[2].splitlines()  # without the line that is shown at first
    assert any("udoku" in line or "needs Java" in line for line in lines)
    assert max(map(len, lines)) <= 60


class Terminal:
    """Command in a pseudo-terminal."""

    def __init__(self, *args: str, folder: Path) -> None:
        self.output, child = pty.openpty()
        command = [sys.executable, "-m", "palestra", *args]
        self.process = subprocess.Popen(command, cwd=folder, stdin=child, stdout=child, stderr=child)
        os.close(child)
        self.written = b""

    @property
    def text(self) -> str:
        return self.written.decode(errors="replace")

    def wait_for(self, text: str) -> None:
        while text not in self.text:
            self.written += os.read(self.output, 65536)

    def press_ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        self.written += read_to_end(self.output)
        return self.process.wait()

    def end_by_ctrl_c(self) -> int:
        """Press Ctrl-C until the command ends; on a loaded machine, two signals may arrive as one."""
        while self.process.poll() is None:
            self.press_ctrl_c()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
        return self.end()


def test_ctrl_c_is_acknowledged_during_a_call_that_does_not_end(tmp_path: Path) -> None:
    (tmp_path / "slow_env.py").write_text(SLOW_ENV)
    terminal = Terminal("play", "slow_env:Slow", folder=tmp_path)
    terminal.wait_for("asleep")
    assert "starting the episode" in terminal.text
    terminal.press_ctrl_c()
    terminal.wait_for("stopping; press Ctrl-C again to stop immediately")
    assert terminal.end_by_ctrl_c() == 130
    assert "interrupted" in terminal.text
    assert "Traceback" not in terminal.text

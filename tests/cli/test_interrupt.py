"""Test Ctrl-C at the start of a command, while its modules are being imported."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from palestra.cli import main

PRESS_CTRL_C_DURING_THE_IMPORT = """
import signal, sys
from importlib.abc import MetaPathFinder
import palestra.cli

class PressCtrlC(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "palestra.cli." + sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, PressCtrlC())
palestra.cli.entry_point()
"""


def test_ctrl_c_while_the_command_is_imported() -> None:
    code = PRESS_CTRL_C_DURING_THE_IMPORT.replace('"palestra.cli." + sys.argv[1]', "sys.argv[1]")
    code = code.replace("import palestra.cli\n", "import palestra.__main__\n")
    code = code.replace("palestra.cli.entry_point()", "palestra.__main__.main()")
    done = subprocess.run([sys.executable, "-c", code, "palestra.cli"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


@pytest.mark.parametrize("verb", ["train", "eval"])
def test_ctrl_c_while_a_verb_is_imported(verb: str) -> None:
    command = [sys.executable, "-c", PRESS_CTRL_C_DURING_THE_IMPORT, verb, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


PRESS_CTRL_C_IN_A_FINALIZER = """
import signal, time
from palestra.cli.interrupts import acknowledged

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

with acknowledged():
    Finalized()
    time.sleep(600)
"""


DROP_THE_FIRST_SIGNAL = """
import signal
send, dropped = signal.pthread_kill, []
signal.pthread_kill = lambda *target: send(*target) if dropped else dropped.append(target)
"""
WITH_ANOTHER_HANDLER = """
import threading

send, is_set = signal.pthread_kill, threading.Event()
signal.pthread_kill = lambda *target: is_set.wait() and send(*target)
with acknowledged():
    Finalized()
    signal.signal(signal.SIGINT, lambda *_: print("called"))
    is_set.set()
    for thread in threading.enumerate():
        if thread.name == "palestra-repeat-ctrl-c":
            thread.join()
"""


@pytest.mark.parametrize("before", ["", DROP_THE_FIRST_SIGNAL])
def test_ctrl_c_in_a_finalizer_is_not_lost(before: str) -> None:
    command = [sys.executable, "-c", before + PRESS_CTRL_C_IN_A_FINALIZER]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "ignored" not in done.stderr


def test_a_handler_that_is_set_before_ctrl_c_is_repeated_is_called_once() -> None:
    code = PRESS_CTRL_C_IN_A_FINALIZER.partition("with acknowledged")[0] + WITH_ANOTHER_HANDLER
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "called\n"


def test_the_handler_for_ctrl_c_is_set_before_other_modules_are_imported() -> None:
    code = (
        "import sys, os, signal; before = set(sys.modules); import palestra.__main__; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"palestra", "palestra.__main__"}


REPORTS_CTRL_C_AS_ANOTHER_ERROR = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt as err:
    raise SystemError(f"cannot be loaded: {type(err).__name__}") from None
"""


def test_ctrl_c_that_a_library_reports_as_another_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "converts_ctrl_c.py").write_text(REPORTS_CTRL_C_AS_ANOTHER_ERROR)
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main(["envs", "--import", "converts_ctrl_c"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.strip() == "interrupted"

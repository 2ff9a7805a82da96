"""Test that programs in forks of the warm process behave like programs in new processes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_process

CODE = (
    "import os, sys\n"
    "print(sys.argv, sys.path[0], os.getcwd(), os.environ.get('HERE'), __name__, sys.stdin.read())\n"
    "print('error', file=sys.stderr)\n"
    "class A: pass\n"
    "import pickle; assert pickle.loads(pickle.dumps(A())).__class__ is A\n"
    "sys.exit({code})\n"
)


@pytest.mark.parametrize("code", ["0", "3", "'stopped'", "1 / 0"])
@pytest.mark.parametrize("as_file", [False, True])
def test_results_equal_those_of_a_new_process(code: str, as_file: bool, tmp_path: Path) -> None:
    program = CODE.format(code=code)
    script = tmp_path / "script.py"
    script.write_text(program)
    command = [sys.executable, *([str(script)] if as_file else ["-c", program]), "a", "b"]
    env = {**os.environ, "HERE": "there"}
    warm = warm_process.run(command, capture_output=True, cwd=tmp_path, env=env)
    new = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, check=False
    )
    assert (warm.returncode, warm.stdout) == (new.returncode, new.stdout)
    assert warm.stderr.splitlines()[0] == "error"
    assert warm.stderr.splitlines()[-1] == new.stderr.splitlines()[-1]


def test_a_module_is_run() -> None:
    done = warm_process.run([sys.executable, "-m", "palestra", "envs", "--jsn"], capture_output=True)
    assert done.returncode == 2
    assert "Did you mean --json?" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_signals(number: signal.Signals) -> None:
    code = "import time\nprint('started', flush=True)\ntime.sleep(600)"
    process = warm_process.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "started\n"
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait() == process.poll() == -number
    assert ("KeyboardInterrupt" in process.stderr.read()) == (number == signal.SIGINT)
    process.stdout.close()
    process.stderr.close()


def test_a_terminal() -> None:
    controller, terminal = pty.openpty()
    code = "import sys; print(sys.stdout.isatty(), sys.stderr.isatty())"
    process = warm_process.Popen([sys.executable, "-c", code], stdout=terminal, stderr=terminal)
    assert process.wait() == 0
    written = b""
    while not written.endswith(b"\n"):
        written += os.read(controller, 100)
    assert written.split() == [b"True", b"True"]
    os.close(terminal)
    os.close(controller)

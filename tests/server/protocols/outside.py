"""Helpers for protocol tests: an interpreter with OpenEnv installed, and a server with a short ping interval."""

from __future__ import annotations

import contextlib
import fcntl
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.server.servers import ROOT, Server

HOME = ROOT / ".cache" / "openenv-venv"
PACKAGES = ("openenv-core==0.3.0", "uvicorn", "httptools", "uvloop", "websockets")
HERE = Path(__file__).parent
# Hides Gradio, which OpenEnv imports for its web interface if it is installed; that takes several seconds of CPU time.
WITHOUT_GRADIO = """
import runpy, sys
sys.modules["gradio"] = None
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def openenv_command(script: str, *arguments: str) -> list[str]:
    """Return the command that runs a script in this folder in an interpreter with OpenEnv."""
    return [openenv_python(), "-W", "ignore", "-c", WITHOUT_GRADIO, str(HERE / script), *arguments]


def openenv_python() -> str:
    """Return the interpreter in a separate virtual environment with OpenEnv, whose packages conflict with ours."""
    HOME.parent.mkdir(exist_ok=True)
    with (HOME.parent / "openenv-venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may run this at the same time
        if not (HOME / ".ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(HOME)], check=True)
            subprocess.run([str(HOME / "bin" / "python"), "-m", "pip", "install", "-q", *PACKAGES], check=True)
            (HOME / ".ready").touch()
    return str(HOME / "bin" / "python")


@contextlib.contextmanager
def started(command: Sequence[str], port: int, *, cwd: Path = ROOT) -> Iterator[str]:
    """Run a server program and yield its URL when it accepts connections."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, cwd=cwd, stdout=output, stderr=output)
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                output.seek(0)
                assert process.poll() is None, output.read()
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def impatient(*envs: str) -> Iterator[Server]:
    """Run a server that pings its WebSockets every 0.2 s."""
    code = "from tests.server.servers import _main; _main()"
    arguments = json.dumps([{"envs": envs, "imports": ["tests.server.bad_ids"], "ping": 0.2}, 0.2])
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-u", "-c", code, arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        try:
            words = process.stdout.readline().split()
            assert words[:1] == ["ready"], log.read_text()
            yield Server(process, words[1], log)
        finally:
            process.terminate()
            process.wait(120)
            process.stdout.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])

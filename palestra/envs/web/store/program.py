"""Find django-oscar, and send requests to the process in which it runs.

One process serves all episodes of this process, each with its own database. It starts with the first request, ends with
this process, and is started again if it was lost.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, BinaryIO, cast

from palestra.errors import EnvFailed, MissingExtra
from palestra.optional import install_command

FOLDER = "PALESTRA_OSCAR"  # environment variable: folder with django-oscar and its dependencies
PACKAGES = ("oscar", "time_machine")
EXTRA = "store"
SERVER = "palestra.envs.web.store.server"
SECONDS = 120.0  # maximum time for a command


def find_oscar() -> list[str]:
    """Return the folders in which the server's process finds packages; raise MissingExtra if one is missing."""
    given = os.environ.get(FOLDER)
    paths = [given, *sys.path] if given else sys.path
    if any(PathFinder.find_spec(name, paths) is None for name in PACKAGES):
        raise MissingExtra(
            f"django-oscar was not found; web:Store needs it. Install it with: {install_command(EXTRA)}, or set "
            f"{FOLDER} to the folder in which it is installed"
        )
    return [str(Path(__file__).parents[4]), *([given] if given else [])]


@cache
def version() -> str:
    """Return the version of django-oscar, such as "4.2.1"."""
    code = "import oscar; print(oscar.get_version())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=_environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode != 0:
        raise EnvFailed(f"django-oscar cannot be imported: {done.stderr[-500:]}")
    return done.stdout.strip()


def _environment() -> dict[str, str]:
    path = os.pathsep.join([*find_oscar(), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "TZ": "UTC"}


def _end(process: subprocess.Popen[bytes], expired: threading.Event) -> None:
    expired.set()
    process.kill()


def _exchange(process: subprocess.Popen[bytes], command: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    stdin, stdout = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
    stdin.write(json.dumps({**command, "size": len(body)}).encode() + b"\n" + body)
    stdin.flush()
    reply = json.loads(stdout.readline())
    content = stdout.read(reply["size"])
    if len(content) < reply["size"]:
        raise OSError("the reply is not complete")
    return reply, content


class Server:
    """The process with django-oscar."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def send(self, command: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Carry out a command and return the reply; raise EnvFailed if the process is lost."""
        with self._lock:
            process = self._start()
            expired = threading.Event()
            limit = threading.Timer(SECONDS, _end, (process, expired))  # applies until the reply is complete
            limit.daemon = True
            limit.start()
            try:
                return _exchange(process, command, body)
            except (OSError, ValueError) as err:
                self._stop()
                reason = f"did not finish its reply within {SECONDS:g} s" if expired.is_set() else f"ended: {err}"
                raise EnvFailed(f"django-oscar {reason}") from err
            finally:
                limit.cancel()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._process is None:
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-m", SERVER],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if self._owner == os.getpid():
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):
                    cast("BinaryIO", stream).close()

    def stop(self) -> None:
        """End the process. The next command starts it again."""
        with self._lock:
            self._stop()

    @property
    def pid(self) -> int | None:
        """Id of the process, or None if it does not run."""
        return None if self._process is None else self._process.pid


SERVER_PROCESS = Server()
atexit.register(SERVER_PROCESS.stop)


def _after_fork() -> None:
    """Close the pipes in a forked process, which needs its own server."""
    SERVER_PROCESS._lock = threading.Lock()
    SERVER_PROCESS._stop()


os.register_at_fork(after_in_child=_after_fork)

"""Run a web application for one episode, on a free port and with its own copy of the data."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from functools import cache
from time import sleep

from palestra.browser.folders import LockedFolder, remove_stale
from palestra.browser.sites import free_port
from palestra.errors import BadValue, EnvFailed

PREFIX = "palestra-web-"  # prefix of the folders with an episode's copy of the data
START_SECONDS = 60.0
POLL_SECONDS = 0.01


@cache
def _remove_stale_folders() -> None:
    """Delete the data of processes that were killed, once per process."""
    remove_stale(PREFIX)


class App:
    """A running application. `{port}` and `{data}` in its command are replaced by its port and its copy of the data."""

    def __init__(self, command: str, data: str | None) -> None:
        self.port = free_port()
        _remove_stale_folders()
        self._folder = LockedFolder(PREFIX)
        self.folder = self._folder.path
        if data is not None:
            shutil.copytree(data, self.folder, dirs_exist_ok=True)
        words = [
            word.replace("{port}", str(self.port)).replace("{data}", str(self.folder)) for word in shlex.split(command)
        ]
        try:
            self._process = subprocess.Popen(
                words,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as err:
            self._folder.remove()
            raise BadValue(f"the application's command cannot be started: {err}") from err
        try:
            self._wait()
        except EnvFailed:
            self.stop()
            raise

    def _wait(self) -> None:
        """Wait until the application accepts connections."""
        for _ in range(int(START_SECONDS / POLL_SECONDS)):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self._process.poll() is not None:
                raise EnvFailed(
                    f"the application ended with exit status {self._process.returncode} before it was ready"
                )
            sleep(POLL_SECONDS)  # the operating system sends no notification when a port is opened
        raise EnvFailed(f"the application did not accept connections within {START_SECONDS:g} s")

    def stop(self) -> None:
        """End the application and delete its copy of the data."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._folder.remove()

"""Run the process of one vLLM server on this machine or on another `ServerHost`."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

STOP_SECONDS = 15.0
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Variables that torchrun sets for the learner's processes; a server must not join their process group.
TORCHRUN = re.compile("(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")


class ServerProcess(Protocol):
    """The process of a server, which can be started again after it has ended."""

    log: Path | None  # file to which the server's output is appended

    @property
    def pid(self) -> int | None:
        """Process id, or None if the process has not been started or was stopped."""

    def start(self) -> None:
        """Start the process unless it was started already; raise EngineFailed if its machine is lost."""

    def exit_code(self) -> int | None:
        """Return the exit code of a process that was started and has ended, otherwise None."""

    def stop(self) -> None:
        """End the process and its children."""


class ServerHost(Protocol):
    """A machine or part of a machine on which a server runs."""

    @property
    def address(self) -> str:
        """IP address at which the trainer reaches servers on this host."""

    def free_port(self) -> int:
        """Return an unused port on this host."""

    def process(self, command: Sequence[str], environment: Mapping[str, str], log: Path | None) -> ServerProcess:
        """Return a process that runs `command` with these additional environment variables."""


class LocalProcess:
    """A process on this machine that ends with the process that started it."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, log: Path | None = None
    ) -> None:
        self.log = log
        self._command = list(command)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        if self._process is not None:
            return
        log = Path(os.devnull) if self.log is None else self.log
        inherited = {name: value for name, value in os.environ.items() if not TORCHRUN.fullmatch(name)}
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "palestra.engines.vllm.launch", *self._command],
                env=inherited | self._environment,
                stdin=subprocess.PIPE,  # closes when this process exits, which ends the server
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its workers can be killed with it
            )

    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for kind in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, kind)
            except ProcessLookupError:
                break  # all processes in the group have exited
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        if process.stdin is not None:
            process.stdin.close()  # kills what is left of the group
        process.wait(timeout=STOP_SECONDS)


class LocalHost:
    """This machine. Servers are reachable only from it."""

    address = "127.0.0.1"

    def free_port(self) -> int:
        return free_port(self.address)

    def process(self, command: Sequence[str], environment: Mapping[str, str], log: Path | None) -> ServerProcess:
        return LocalProcess(command, environment, log)


def free_port(host: str = "127.0.0.1") -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port

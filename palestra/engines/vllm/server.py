"""Start, watch and stop one vLLM server process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic

from palestra.engines.vllm.client import VLLMClient
from palestra.engines.vllm.commands import PYTHON
from palestra.errors import EngineFailed

POLL_SECONDS = 0.5
STOP_SECONDS = 15.0
LOG_TAIL = 3000  # characters of a server's log in an error message


class VLLMServer:
    """A vLLM server at `client.base_url`. With a `command`, this object starts and stops the server.

    `up` is True while the server has the current weights and responds to requests.
    """

    def __init__(
        self,
        client: VLLMClient,
        *,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        start_timeout: float = 900.0,
    ) -> None:
        self.client = client
        self.up = False
        self.restarts = 0
        self._command = list(command)
        self._environment = dict(environment or {})
        self._log = log
        self._start_timeout = start_timeout
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"VLLMServer({self.client.base_url!r}, up={self.up})"

    @property
    def url(self) -> str:
        return self.client.base_url

    @property
    def owned(self) -> bool:
        """True if this object starts the server."""
        return bool(self._command)

    @property
    def pid(self) -> int | None:
        """Process id of a running server that this object started."""
        return None if self._process is None else self._process.pid

    @property
    def exited(self) -> bool:
        """True if this object has started the server and its process has ended."""
        return self._process is not None and self._process.poll() is not None

    async def start(self) -> None:
        """Start the server if this object owns it, and wait until it responds."""
        if self.owned and self._process is None:
            self._spawn()
        await self._wait_until_healthy()
        await self.client.ready()

    async def restart(self) -> None:
        """Restart the server if this object owns it; otherwise wait until it responds again."""
        self.up = False
        self.restarts += 1
        if self.owned:
            await asyncio.to_thread(self.stop)
        await self.start()

    def stop(self) -> None:
        """End the server's processes, if this object started them."""
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

    def _spawn(self) -> None:
        log = Path(os.devnull) if self._log is None else self._log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "palestra.engines.vllm.launch", *self._command],
                env=os.environ | self._environment,
                stdin=subprocess.PIPE,  # closes when this process exits, which ends the server
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its workers can be killed with it
            )

    async def _wait_until_healthy(self) -> None:
        end = monotonic() + self._start_timeout
        while not await self.client.healthy():
            code = None if self._process is None else self._process.poll()
            if code is not None:
                raise EngineFailed(f"the vLLM server exited with code {code} while it started{self._log_tail()}")
            if monotonic() > end:
                raise EngineFailed(
                    f"the vLLM server at {self.url} did not answer within {self._start_timeout:g} s{self._log_tail()}"
                )
            await asyncio.sleep(POLL_SECONDS)

    def _log_tail(self) -> str:
        if self._log is None or not self._log.exists():
            return ""
        text = self._log.read_text(errors="replace")[-LOG_TAIL:]
        missing = "No module named" in text and "vllm" in text
        hint = f" Install vLLM, or set {PYTHON} to the interpreter of an environment that has it." if missing else ""
        return f".{hint} The end of {self._log}:\n{text}"


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is not in use."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port

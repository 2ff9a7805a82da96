"""Start, watch and stop one vLLM server."""

from __future__ import annotations

import asyncio
from time import monotonic

from palestra.engines.vllm.client import VLLMClient
from palestra.engines.vllm.commands import PYTHON
from palestra.engines.vllm.process import ServerProcess
from palestra.errors import EngineFailed

POLL_SECONDS = 0.5
LOG_TAIL = 3000  # characters of a server's log in an error message


class VLLMServer:
    """A vLLM server at `client.base_url`. With a `process`, this object starts and stops the server.

    `up` is True while the server has the current weights and responds to requests.
    """

    def __init__(
        self,
        client: VLLMClient,
        *,
        process: ServerProcess | None = None,
        start_timeout: float = 900.0,
    ) -> None:
        self.client = client
        self.up = False
        self.restarts = 0
        self._process = process
        self._start_timeout = start_timeout

    def __repr__(self) -> str:
        return f"VLLMServer({self.client.base_url!r}, up={self.up})"

    @property
    def url(self) -> str:
        return self.client.base_url

    @property
    def owned(self) -> bool:
        """True if this object starts the server."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """Process id of a running server that this object started."""
        return None if self._process is None else self._process.pid

    @property
    def exited(self) -> bool:
        """True if this object has started the server and its process has ended."""
        return self._process is not None and self._process.exit_code() is not None

    async def start(self) -> None:
        """Start the server if this object owns it, and wait until it responds."""
        if self._process is not None:
            self._process.start()
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
        if self._process is not None:
            self._process.stop()

    async def _wait_until_healthy(self) -> None:
        end = monotonic() + self._start_timeout
        while not await self.client.healthy():
            code = None if self._process is None else self._process.exit_code()
            if code is not None:
                raise EngineFailed(f"the vLLM server exited with code {code} while it started{self._log_tail()}")
            if monotonic() > end:
                raise EngineFailed(
                    f"the vLLM server at {self.url} did not answer within {self._start_timeout:g} s{self._log_tail()}"
                )
            await asyncio.sleep(POLL_SECONDS)

    def _log_tail(self) -> str:
        log = None if self._process is None else self._process.log
        if log is None or not log.exists():
            return ""
        text = log.read_text(errors="replace")[-LOG_TAIL:]
        missing = "No module named" in text and "vllm" in text
        hint = f" Install vLLM, or set {PYTHON} to the interpreter of an environment that has it." if missing else ""
        return f".{hint} The end of {log}:\n{text}"

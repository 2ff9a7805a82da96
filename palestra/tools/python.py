"""Python tool: runs a model's code in the sandbox and returns its output, last value and errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

from palestra.errors import BadValue
from palestra.seeding import child_seed
from palestra.tools.base import Tool, ToolResult
from palestra.tools.sandbox import Limits, Result, Sandbox, SandboxDied, SandboxSession, shared_sandbox

LIMITS = Limits(wall=10.0, cpu=10.0, memory=1 << 30, output=64 << 10)
_STOPPED = {
    "time": "it ran longer than {wall:g} seconds",
    "cpu": "it used more than {cpu:g} seconds of CPU time",
    "memory": "it needed more than {megabytes} MB of memory",
    "processes": "it started more than {processes} processes or threads",
    "output": "it printed more than {output} bytes; the rest is not shown",
    "disk": "it wrote more than {disk} MB of files",
}


class PythonTool(Tool):
    """Runs Python code in a sandbox and returns its output and the value of a trailing expression.

    `stateful=True` preserves variables between calls within an episode. `sandbox` replaces the shared sandbox.
    """

    name = "python"
    tag = "python"
    body = "code"
    fences = ("python", "py", "python3")
    example: Mapping[str, Any] | None = {"code": "print(6 * 7)"}

    def __init__(
        self,
        mode: str = "fresh",
        *,
        stateful: bool = False,
        limits: Limits = LIMITS,
        sandbox: Sandbox | None = None,
    ) -> None:
        """Create the tool; `mode` is the part after the colon in `tools=["python:stateful"]`."""
        if mode not in ("fresh", "stateful"):
            raise BadValue(
                f"`mode` must be 'fresh' or 'stateful' (tools=['python'] or ['python:stateful']), got {mode!r}"
            )
        self.stateful = stateful or mode == "stateful"
        self.limits = limits
        state = "Variables persist between calls." if self.stateful else "Every call starts a new interpreter."
        self.description = (
            "Run Python code and return what it prints. If the last line is an expression, its value is also returned. "
            f"numpy and sympy are installed. {state} There is no network access."
        )
        self._sandbox = sandbox
        if sandbox is None:
            shared_sandbox()  # raises NoSandbox now rather than in the middle of an episode

    def open(self, *, seed: int) -> _EpisodePythonTool:
        return _EpisodePythonTool(self, seed)

    async def aopen(self, *, seed: int) -> _EpisodePythonTool:
        return self.open(seed=seed)

    @property
    def sandbox(self) -> Sandbox:
        return self._sandbox or shared_sandbox()

    def call(self, code: str) -> ToolResult:
        """Run the code in the sandbox.

        code: the Python code to run
        """
        return self.to_tool_result(self.sandbox.run(code, limits=self.limits, echo=True, brief=True))

    async def acall(self, code: str) -> ToolResult:
        return self.to_tool_result(await self.sandbox.arun(code, limits=self.limits, echo=True, brief=True))

    def to_tool_result(self, result: Result) -> ToolResult:
        """Format a sandbox result for the model."""
        parts = [result.stdout.rstrip("\n"), result.stderr.rstrip("\n")]
        if result.limit is not None:
            limits = self.limits
            reason = _STOPPED[result.limit].format(
                wall=limits.wall,
                cpu=limits.cpu,
                megabytes=limits.memory >> 20,
                processes=limits.processes,
                output=limits.output,
                disk=limits.disk >> 20,
            )
            parts.append(f"The program was stopped: {reason}.")
        elif result.signal is not None:
            parts.append(f"The program crashed ({result.signal}).")
        elif result.status == "error" and not result.stderr:
            parts.append(f"The program ended with exit code {result.exit_code}.")
        if result.ended and self.stateful:
            parts.append("The interpreter was restarted: all variables are lost.")
        text = "\n".join(part for part in parts if part) or "(The program printed nothing.)"
        info = {"status": result.status, "limit": result.limit, "seconds": result.duration}
        return ToolResult(text=text, ok=result.ok, info=info)


class _EpisodePythonTool(PythonTool):
    """Python tool for one episode, with the episode's random seed and, if stateful, its variables."""

    def __init__(self, tool: PythonTool, seed: int) -> None:
        self.stateful = tool.stateful
        self.limits = tool.limits
        self.description = tool.description
        self._sandbox = tool._sandbox
        self._seed = seed
        self._cells: list[str] = []  # cells executed so far; a fork executes them again to restore the variables
        self._calls = 0
        self._session: SandboxSession | None = None

    def call(self, code: str) -> ToolResult:
        """Run the code in the sandbox.

        code: the Python code to run
        """
        if self.stateful:
            self._session = self._session or self._replay_cells()
            with self._forget_lost_session():
                return self._record(code, self._session.run(code))
        return self.to_tool_result(
            self.sandbox.run(code, limits=self.limits, echo=True, brief=True, seed=self._next_seed())
        )

    async def acall(self, code: str) -> ToolResult:
        if self.stateful:
            if self._session is None:
                self._session = await asyncio.to_thread(self._replay_cells)
            with self._forget_lost_session():
                return self._record(code, await self._session.arun(code))
        result = await self.sandbox.arun(code, limits=self.limits, echo=True, brief=True, seed=self._next_seed())
        return self.to_tool_result(result)

    def _next_seed(self) -> int:
        self._calls += 1
        return child_seed(self._seed, "python", self._calls)

    def _replay_cells(self) -> SandboxSession:
        """Open a session and execute all earlier cells from the episode in it."""
        seed = child_seed(self._seed, "python", 0)
        session = self.sandbox.session(limits=self.limits, echo=True, brief=True, seed=seed)
        for cell in self._cells:
            session.run(cell)
        return session

    @contextlib.contextmanager
    def _forget_lost_session(self) -> Iterator[None]:
        """Drop the session if the sandbox fails. The next call opens another one and repeats the earlier cells."""
        try:
            yield
        except SandboxDied:
            self._session = None
            raise

    def _record(self, code: str, result: Result) -> ToolResult:
        if result.ended:
            self._session = None
            self._cells.clear()
        else:
            self._cells.append(code)
        return self.to_tool_result(result)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def fork(self) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__getstate__())
        return copied

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None, "_cells": list(self._cells)}

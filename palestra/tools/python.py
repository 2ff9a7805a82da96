"""The Python tool: a model's code in, what it printed, the value of its last line and what went wrong out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Self

from palestra.errors import BadValue
from palestra.seeding import child_seed
from palestra.tools.base import Tool, ToolResult
from palestra.tools.sandbox import Limits, Result, Sandbox, SandboxSession, shared_sandbox

LIMITS = Limits(wall=10.0, cpu=10.0, memory=1 << 30, output=64 << 10)
_STOPPED = {
    "time": "it ran longer than {wall:g} seconds",
    "cpu": "it used more than {cpu:g} seconds of processor time",
    "memory": "it needed more than {megabytes} MB of memory",
    "processes": "it started more than {processes} processes or threads",
    "output": "it printed more than {output} bytes; the rest is not shown",
    "disk": "it wrote more than {disk} MB of files",
}


class PythonTool(Tool):
    """Python in a sandbox: what the code prints, and the value of a last line that is an expression.

    `stateful=True` keeps variables from call to call within an episode. `sandbox`: another one than the process-wide.
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
        """`mode` is for names: "python" is fresh, "python:stateful" is stateful."""
        if mode not in ("fresh", "stateful"):
            raise BadValue(f"the python tool is 'python' or 'python:stateful', got {mode!r}")
        self.stateful = stateful or mode == "stateful"
        self.limits = limits
        kept = "Variables stay for the next call." if self.stateful else "Every call starts anew."
        self.description = (
            "Run Python code and see what it prints; the value of a last line that is an expression is shown, too. "
            f"numpy and sympy are installed. {kept} There is no network."
        )
        self._sandbox = sandbox
        if sandbox is None:
            shared_sandbox()  # where there is none to be had, say so now and not in the middle of an episode

    def open(self, *, seed: int) -> _Episode:
        return _Episode(self, seed)

    async def aopen(self, *, seed: int) -> _Episode:
        return self.open(seed=seed)

    @property
    def sandbox(self) -> Sandbox:
        return self._sandbox or shared_sandbox()

    def call(self, code: str) -> ToolResult:
        """code: the program"""
        return self.shown(self.sandbox.run(code, limits=self.limits, echo=True, brief=True))

    async def acall(self, code: str) -> ToolResult:
        return self.shown(await self.sandbox.arun(code, limits=self.limits, echo=True, brief=True))

    def shown(self, result: Result) -> ToolResult:
        """A result as the model reads it."""
        parts = [result.stdout.rstrip("\n"), result.stderr.rstrip("\n")]
        if result.limit is not None:
            limits = self.limits
            why = _STOPPED[result.limit].format(
                wall=limits.wall,
                cpu=limits.cpu,
                megabytes=limits.memory >> 20,
                processes=limits.processes,
                output=limits.output,
                disk=limits.disk >> 20,
            )
            parts.append(f"The program was stopped: {why}.")
        elif result.signal is not None:
            parts.append(f"The program crashed ({result.signal}).")
        elif result.status == "error" and not result.stderr:
            parts.append(f"The program ended with exit code {result.exit_code}.")
        if result.ended and self.stateful:
            parts.append("The interpreter was started anew: all variables are gone.")
        text = "\n".join(part for part in parts if part) or "(The program printed nothing.)"
        info = {"status": result.status, "limit": result.limit, "seconds": result.duration}
        return ToolResult(text=text, ok=result.ok, info=info)


class _Episode(PythonTool):
    """The tool within one episode: chance is the episode's, and so are the variables of a stateful one."""

    def __init__(self, made: PythonTool, seed: int) -> None:
        self.stateful = made.stateful
        self.limits = made.limits
        self.description = made.description
        self._sandbox = made._sandbox
        self._seed = seed
        self._cells: list[str] = []  # that led to the variables; they are run again in a copy
        self._calls = 0
        self._session: SandboxSession | None = None

    def call(self, code: str) -> ToolResult:
        """code: the program"""
        if self.stateful:
            self._session = self._session or self._replayed()
            return self._noted(code, self._session.run(code))
        return self.shown(self.sandbox.run(code, limits=self.limits, echo=True, brief=True, seed=self._next_seed()))

    async def acall(self, code: str) -> ToolResult:
        if self.stateful:
            if self._session is None:
                self._session = await asyncio.to_thread(self._replayed)
            return self._noted(code, await self._session.arun(code))
        result = await self.sandbox.arun(code, limits=self.limits, echo=True, brief=True, seed=self._next_seed())
        return self.shown(result)

    def _next_seed(self) -> int:
        self._calls += 1
        return child_seed(self._seed, "python", self._calls)

    def _replayed(self) -> SandboxSession:
        """A session in the state that the cells so far led to."""
        seed = child_seed(self._seed, "python", 0)
        session = self.sandbox.session(limits=self.limits, echo=True, brief=True, seed=seed)
        for cell in self._cells:
            session.run(cell)
        return session

    def _noted(self, code: str, result: Result) -> ToolResult:
        if result.ended:
            self._session = None
            self._cells.clear()
        else:
            self._cells.append(code)
        return self.shown(result)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def fork(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__getstate__())
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None, "_cells": list(self._cells)}

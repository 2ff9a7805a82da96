"""A Program -> a running process with MCP messages in and out: bounded, watched, and gone at the end.

The SDK has a transport for this. This one also knows how the process ended, what it said last on its standard error,
and what it printed that is no message, so that a failure can be told; and a line without an end fills no memory.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from palestra.errors import BadValue
from palestra.optional import require
from palestra.tools.mcp.servers import Program

LONGEST_LINE = 32 * 2**20  # bytes of one message
MOST_GARBAGE = 1_000  # lines that are no message before the server is given up
_GRACE = 2.0  # seconds to end after its input ended, and again after it was told to
_HASTE = 0.2
_TAIL = 2_000  # characters of standard error that are kept


@dataclass(slots=True)
class Notes:
    """What became known of a server, for whoever has to explain a failure."""

    over: str = ""  # why no more messages come; "" while they may
    garbage: int = 0  # lines that were no message
    first_garbage: str = ""
    errors: str = ""  # the end of its standard error
    pid: int | None = None

    def told(self) -> str:
        """Behind a sentence about a failure."""
        parts = []
        if self.garbage:
            parts.append(f"It printed {self.garbage} lines that are no MCP messages, the first: {self.first_garbage!r}")
        if self.errors.strip():
            parts.append(f"Its last words on standard error: {self.errors.strip()[-600:]}")
        return ". ".join(["", *parts])


def kill(notes: Notes) -> None:
    """End the process, and those it started, at once."""
    if notes.pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(notes.pid, signal.SIGKILL)


@asynccontextmanager
async def running(program: Program, notes: Notes) -> AsyncIterator[tuple[Any, Any]]:
    """The process and its streams, as the SDK's client takes them."""
    anyio = require("anyio", extra="mcp")
    stdio = require("mcp.client.stdio", extra="mcp")
    process = await _started(program, {**stdio.get_default_environment(), **dict(program.env)})
    notes.pid = process.pid
    to_session, incoming = anyio.create_memory_object_stream(0)
    outgoing, from_session = anyio.create_memory_object_stream(0)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process, to_session, notes)
            tasks.start_soon(_write, process, from_session)
            tasks.start_soon(_listen, process, notes)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    await _ended(process, notes)
                tasks.cancel_scope.cancel()
    finally:
        for stream in (to_session, incoming, outgoing, from_session):
            stream.close()
        notes.over = notes.over or "it was closed"


async def _started(program: Program, environment: dict[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            program.command,
            *program.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=program.cwd,
            start_new_session=True,  # so that all it starts can be ended with it
            limit=LONGEST_LINE,
        )
    except (FileNotFoundError, PermissionError, NotADirectoryError) as err:
        what = program.cwd if program.cwd is not None and not os.path.isdir(program.cwd) else program.command  # noqa: PTH112
        raise BadValue(f"the MCP server {program.name} cannot be started: {what}: {err.strerror}") from err


async def _read(process: asyncio.subprocess.Process, to_session: Any, notes: Notes) -> None:
    """Lines from the server to the session, until they end; then say why."""
    anyio = require("anyio", extra="mcp")
    message = require("mcp.shared.message", extra="mcp").SessionMessage
    parsed = require("mcp_types", extra="mcp").jsonrpc_message_adapter.validate_json
    if process.stdout is None:
        return
    try:
        while notes.garbage <= MOST_GARBAGE:
            try:
                line = await process.stdout.readline()
            except ValueError:
                notes.over = f"it sent a line of more than {LONGEST_LINE >> 20} MB"
                return
            if not line:
                notes.over = notes.over or await _how_it_ended(process)
                return
            try:
                found = parsed(line, by_name=False)
            except ValueError:
                if line.strip():
                    notes.garbage += 1
                    notes.first_garbage = notes.first_garbage or line[:80].decode("utf-8", "replace").strip()
                    await asyncio.sleep(0)  # a flood of it must not keep others from their turn
                continue
            await to_session.send(message(found))
        notes.over = "it prints what is no MCP"
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the session is over
    except (OSError, asyncio.IncompleteReadError) as err:
        notes.over = str(err)
    finally:
        to_session.close()  # whoever waits for an answer learns that none will come


async def _how_it_ended(process: asyncio.subprocess.Process) -> str:
    if not await _gone(process, 0.5):
        return "it closed its output"
    code = process.returncode or 0
    return f"it ended with exit code {code}" if code >= 0 else f"it was ended by {signal.Signals(-code).name}"


async def _write(process: asyncio.subprocess.Process, from_session: Any) -> None:
    if process.stdin is None:
        return
    with suppress(OSError):  # the reader will see that it is gone
        async for item in from_session:
            process.stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _listen(process: asyncio.subprocess.Process, notes: Notes) -> None:
    """Keep the end of what it says on its standard error."""
    if process.stderr is None:
        return
    with suppress(OSError):
        while chunk := await process.stderr.read(65_536):
            notes.errors = (notes.errors + chunk.decode("utf-8", "replace"))[-_TAIL:]


async def _ended(process: asyncio.subprocess.Process, notes: Notes) -> None:
    """First its input ends, then it is told to end, then it is ended; and what it left behind as well."""
    if process.stdin is not None:
        process.stdin.close()
    grace = _HASTE if notes.over else _GRACE  # whose output is over has nothing left to finish
    for number in (signal.SIGTERM, signal.SIGKILL):
        if await _gone(process, grace):
            break
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    await _gone(process, _GRACE)
    kill(notes)
    notes.pid = None
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()  # a grandchild may hold the pipes open


async def _gone(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Whether it ended by then. `process.wait()` would wait for its pipes, too, which others may hold."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while process.returncode is None:
        if loop.time() > until:
            return False
        await asyncio.sleep(0.01)
    return True

"""Transport for MCP servers that run as subprocesses.

Unlike the SDK's transport, it records how the process ended, the last part of its standard error and any output that is
not MCP, and includes them in error messages. It also limits the line length, so that endless output cannot fill memory.
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
from palestra.tools.mcp.servers import StdioServer

MAX_LINE = 32 * 2**20  # maximum number of bytes per message
MAX_INVALID_LINES = 1_000  # the connection is closed after this many lines that are not MCP
_GRACE = 2.0  # seconds that a server has to exit after its input is closed, and again after SIGTERM
_SHORT_GRACE = 0.2  # used instead of _GRACE if the server has already closed its output or failed
_EXIT_WAIT = 2.0  # seconds to wait for the process to exit after its output has ended
_STDERR_CHARS = 2_000  # number of characters stored from the end of standard error


@dataclass(slots=True)
class ServerStatus:
    """Status of a server process, for error messages."""

    ended: str = ""  # reason why the server sends no more messages; "" while it is running
    invalid_lines: int = 0  # number of output lines that are not MCP
    first_invalid_line: str = ""
    stderr: str = ""  # last part of the server's standard error
    pid: int | None = None

    def details(self) -> str:
        """Return details to append to an error message."""
        parts = []
        if self.invalid_lines:
            first = self.first_invalid_line
            parts.append(f"It printed {self.invalid_lines} lines that are not MCP messages; the first is {first!r}")
        if self.stderr.strip():
            parts.append(f"Its standard error ends with: {self.stderr.strip()[-600:]}")
        return ". ".join(["", *parts])


def kill(status: ServerStatus) -> None:
    """Kill the process and its children."""
    if status.pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(status.pid, signal.SIGKILL)


@asynccontextmanager
async def stdio_transport(server: StdioServer, status: ServerStatus) -> AsyncIterator[tuple[Any, Any]]:
    """Start the process and yield its input and output streams for the SDK's client."""
    anyio = require("anyio", extra="mcp")
    stdio = require("mcp.client.stdio", extra="mcp")
    process = await _start(server, {**stdio.get_default_environment(), **dict(server.env)})
    status.pid = process.pid
    to_session, incoming = anyio.create_memory_object_stream(0)
    outgoing, from_session = anyio.create_memory_object_stream(0)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process, to_session, status)
            tasks.start_soon(_write, process, from_session)
            tasks.start_soon(_read_stderr, process, status)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(process, status)
                tasks.cancel_scope.cancel()
    finally:
        for stream in (to_session, incoming, outgoing, from_session):
            stream.close()
        status.ended = status.ended or "it was closed"


async def _start(server: StdioServer, environment: dict[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            server.command,
            *server.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=server.cwd,
            start_new_session=True,  # its own process group, so that its children can be killed too
            limit=MAX_LINE,
        )
    except (FileNotFoundError, PermissionError, NotADirectoryError) as err:
        missing = server.cwd if server.cwd is not None and not os.path.isdir(server.cwd) else server.command  # noqa: PTH112
        raise BadValue(f"the MCP server {server.name} cannot be started: {missing}: {err.strerror}") from err


async def _read(process: asyncio.subprocess.Process, to_session: Any, status: ServerStatus) -> None:
    """Pass messages from the server to the session until its output ends, and record why it ended."""
    anyio = require("anyio", extra="mcp")
    message = require("mcp.shared.message", extra="mcp").SessionMessage
    parse = require("mcp_types", extra="mcp").jsonrpc_message_adapter.validate_json
    if process.stdout is None:
        return
    try:
        while status.invalid_lines <= MAX_INVALID_LINES:
            try:
                line = await process.stdout.readline()
            except ValueError:
                status.ended = f"it sent a line of more than {MAX_LINE >> 20} MB"
                return
            if not line:
                status.ended = status.ended or await _exit_description(process)
                return
            try:
                parsed = parse(line, by_name=False)
            except ValueError:
                if line.strip():
                    status.invalid_lines += 1
                    status.first_invalid_line = (
                        status.first_invalid_line or line[:80].decode("utf-8", "replace").strip()
                    )
                    await asyncio.sleep(0)  # let other tasks run while the server writes a lot of output
                continue
            await to_session.send(message(parsed))
        status.ended = "it prints output that is not MCP"
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the session ended
    except (OSError, asyncio.IncompleteReadError) as err:
        status.ended = str(err)
    finally:
        to_session.close()  # closing the stream makes pending requests fail


async def _exit_description(process: asyncio.subprocess.Process) -> str:
    if not await _wait_for_exit(process, _EXIT_WAIT):
        return "it closed its output"
    code = process.returncode or 0
    return f"it ended with exit code {code}" if code >= 0 else f"it was killed by {signal.Signals(-code).name}"


async def _write(process: asyncio.subprocess.Process, from_session: Any) -> None:
    if process.stdin is None:
        return
    with suppress(OSError):  # the process has exited; the reader handles that
        async for item in from_session:
            process.stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await process.stdin.drain()


async def _read_stderr(process: asyncio.subprocess.Process, status: ServerStatus) -> None:
    """Record the last part of the process's standard error."""
    if process.stderr is None:
        return
    with suppress(OSError):
        while chunk := await process.stderr.read(65_536):
            status.stderr = (status.stderr + chunk.decode("utf-8", "replace"))[-_STDERR_CHARS:]


async def _end(process: asyncio.subprocess.Process, status: ServerStatus) -> None:
    """Close the process's input, then send SIGTERM, then SIGKILL, until it exits; then kill its children."""
    if process.stdin is not None:
        process.stdin.close()
    grace = _SHORT_GRACE if status.ended else _GRACE
    for number in (signal.SIGTERM, signal.SIGKILL):
        if await _wait_for_exit(process, grace):
            break
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    await _wait_for_exit(process, _GRACE)
    kill(status)
    status.pid = None
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()  # close the pipes here, because other processes may still have them open


async def _wait_for_exit(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Return whether the process exits within `seconds`; `process.wait()` would also wait for its pipes to close."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while process.returncode is None:
        if loop.time() > until:
            return False
        await asyncio.sleep(0.01)
    return True

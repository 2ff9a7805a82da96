"""Make tools on MCP servers available in an environment, with one session per episode or a shared session."""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import os
import weakref
from asyncio import wrap_future
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

from palestra.errors import BadValue, InfrastructureError, ToolFailed
from palestra.optional import require
from palestra.tools.base import Tool, ToolResult, Toolset, on_tool_loop
from palestra.tools.mcp.connection import McpConnection, Timeouts, ToolDescription
from palestra.tools.mcp.servers import Server, parse_servers
from palestra.tools.mcp.stdio import kill
from palestra.types import Part

SESSIONS = ("episode", "shared")
EXIT_TIMEOUT = 2.0  # seconds that servers have to stop when the process exits

_tool_lists: dict[Server, tuple[ToolDescription, ...]] = {}  # tool lists are requested once per process
_shared: dict[tuple[Server, Timeouts], McpSession] = {}
_open_sessions: weakref.WeakSet[McpSession] = weakref.WeakSet()


class McpSession:
    """Session with a server, used by one episode or by all; connects on demand and reconnects after failures."""

    def __init__(self, server: Server, timeouts: Timeouts, *, stateful: bool) -> None:
        self._connection: McpConnection | None = None
        self.server = server
        self.timeouts = timeouts
        self.stateful = stateful
        self._lock: asyncio.Lock | None = None
        self._pid = os.getpid()
        if not _open_sessions:
            atexit.register(_end_all)
        _open_sessions.add(self)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        connection = self._connection
        if connection is None or not connection.alive:
            connection = await self._connect()
        try:
            return await connection.call(name, arguments)
        except InfrastructureError:
            if not connection.alive and self._connection is connection:
                self._connection = None  # the next call reconnects
                await connection.abandon("it failed")
            raise

    async def list_tools(self) -> tuple[ToolDescription, ...]:
        if self.server not in _tool_lists:
            connection = self._connection
            if connection is None or not connection.alive:
                connection = await self._connect()
            _tool_lists[self.server] = connection.tools
        return _tool_lists[self.server]

    async def _connect(self) -> McpConnection:
        if self._pid != os.getpid():  # the event loop and the connection do not work in a forked child
            self._pid, self._lock, self._connection = os.getpid(), None, None
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            before = self._connection
            if before is not None and before.alive:
                return before  # another task has reconnected
            self._connection = None
            if before is not None:
                await before.abandon("it failed")
            if before is not None and self.stateful and before.calls:
                raise ToolFailed(
                    f"the MCP server {self.server.name} stopped after the last call ({before.status.ended}), and its "
                    f"state for this episode is lost{before.status.details()}"
                )
            connection = McpConnection(self.server, self.timeouts)
            await connection.start()
            self._connection = connection
            return connection

    def kill(self) -> None:
        """Kill the server process, if there is one, without waiting for it."""
        if self._connection is not None:
            kill(self._connection.status)

    async def end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.stop()

    @property
    def open(self) -> bool:
        return self._connection is not None and self._pid == os.getpid()

    @property
    def used(self) -> bool:
        return self._connection is not None and self._connection.calls > 0

    def __del__(self) -> None:
        if self._connection is not None:  # close() was not called
            self._connection.stop_soon()

    def transfer(self, other: McpSession) -> None:
        """Move the connection to the next episode's session if no call has used it."""
        if self.open and not self.used:
            other._connection, self._connection = self._connection, None


class McpTools(Toolset):
    """Tools on one or more MCP servers.

    `source` is a command ("uvx mcp-server-time"), an address ("http://localhost:8000/mcp"), a JSON file with
    `mcpServers` as used by other clients, or the content of such a file.

    With `session="episode"`, the first call in each episode opens a new session, and starts a new process if `source`
    is a command. With `session="shared"`, all episodes use the same session, which is suitable for stateless servers.
    A call times out after `timeout` seconds, and starting a server times out after `start_timeout` seconds. A server
    that exited or hangs is restarted for the next call. A result of more than `max_characters` characters is cut,
    because it would fill the model's context. `only` selects tools by name. If several servers have a tool with the
    same name, each tool name is prefixed with the server's name, as in `files__read`.
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any] | Sequence[str],
        *,
        session: str = "episode",
        timeout: float = 60.0,
        start_timeout: float = 60.0,
        max_characters: int = 100_000,
        only: Sequence[str] | None = None,
    ) -> None:
        require("mcp", extra="mcp")
        if session not in SESSIONS:
            raise BadValue(f"`session` must be one of {', '.join(SESSIONS)}; got {session!r}")
        if timeout <= 0 or start_timeout <= 0:
            raise BadValue(f"`timeout` and `start_timeout` must be above 0, got {timeout} and {start_timeout}")
        if max_characters < 1:
            raise BadValue(f"`max_characters` must be at least 1, got {max_characters}")
        self.servers = parse_servers(source)
        self.max_characters = max_characters
        self.timeouts = Timeouts(call=timeout, start=start_timeout)
        self.session = session
        self.only = tuple(only) if only is not None else None
        self._tools: tuple[McpTool, ...] | None = None
        self._sessions = self._create_sessions()

    def _create_sessions(self) -> tuple[McpSession, ...]:
        if self.session == "episode":
            return tuple(McpSession(server, self.timeouts, stateful=True) for server in self.servers)
        for server in self.servers:
            _shared.setdefault((server, self.timeouts), McpSession(server, self.timeouts, stateful=False))
        return tuple(_shared[server, self.timeouts] for server in self.servers)

    @property
    def tools(self) -> Sequence[Tool]:
        if self._tools is None:
            self._tools = on_tool_loop(self._load_tools()).result()
        return self._tools

    async def _load_tools(self) -> tuple[McpTool, ...]:
        tool_lists = await asyncio.gather(*(session.list_tools() for session in self._sessions))
        counts: dict[str, int] = {}
        for tool in (tool for tools in tool_lists for tool in tools):
            counts[tool.name] = counts.get(tool.name, 0) + 1
        available = [
            McpTool(
                tool,
                session,
                f"{session.server.name}__{tool.name}" if counts[tool.name] > 1 else tool.name,
                self.max_characters,
            )
            for session, tools in zip(self._sessions, tool_lists, strict=True)
            for tool in tools
        ]
        if self.only is None:
            return tuple(available)
        missing = set(self.only) - {tool.name for tool in available}
        if missing:
            names = ", ".join(tool.name for tool in available)
            raise BadValue(f"these MCP servers have no tool {', '.join(sorted(missing))}; available: {names}")
        return tuple(tool for tool in available if tool.name in self.only)

    def open(self, *, seed: int) -> McpTools:  # noqa: ARG002  # MCP has no seeds
        return self._copy() if self.session == "episode" else self

    async def aopen(self, *, seed: int) -> McpTools:
        return self.open(seed=seed)

    def _copy(self) -> McpTools:
        copied = object.__new__(McpTools)
        copied.__dict__.update(self.__dict__)
        copied._sessions = copied._create_sessions()
        for session, new_session in zip(self._sessions, copied._sessions, strict=True):
            session.transfer(new_session)
        if self._tools is not None:
            new_sessions = dict(zip(self._sessions, copied._sessions, strict=True))
            copied._tools = tuple(
                McpTool(tool.remote, new_sessions[tool.session], tool.name, tool.max_characters) for tool in self._tools
            )
        return copied

    def close(self) -> None:
        if self.session == "episode" and any(session.open for session in self._sessions):
            on_tool_loop(self._end_sessions()).result()

    async def aclose(self) -> None:
        if self.session == "episode" and any(session.open for session in self._sessions):
            await wrap_future(on_tool_loop(self._end_sessions()))

    async def _end_sessions(self) -> None:
        await asyncio.gather(*(session.end() for session in self._sessions))

    def fork(self) -> McpTools:
        if self.session == "shared":
            return self
        if any(session.used for session in self._sessions):
            raise BadValue(
                "an episode that has called an MCP server cannot be forked: the server's state cannot be copied. "
                "For a stateless server, use McpTools(..., session='shared')"
            )
        return self._copy()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sessions": (), "_tools": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._sessions = self._create_sessions()


class McpTool(Tool):
    """A tool on an MCP server."""

    def __init__(self, remote: ToolDescription, session: McpSession, name: str, max_characters: int) -> None:
        self.remote = remote
        self.max_characters = max_characters
        self.session = session
        self.name = name
        self.description = remote.description
        self.parameters = remote.parameters

    async def call(self, **arguments: Any) -> ToolResult:
        return _result(await self.session.call(self.remote.name, arguments), self.max_characters)


def _result(reply: Any, max_characters: int) -> ToolResult:
    """Convert a server's reply to text and images; other content is replaced by the name of its type."""
    parts = [_part(block) for block in reply.content]
    if not parts and reply.structured_content is not None:
        parts = [{"type": "text", "text": json.dumps(reply.structured_content, ensure_ascii=False)}]
    parts = _cut(parts, max_characters)
    ok = not reply.is_error
    if all(part["type"] == "text" for part in parts):
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        return ToolResult(text=text if ok or text.startswith("Error") else f"Error: {text}", ok=ok)
    return ToolResult(text=parts, ok=ok)


def _cut(parts: list[Part], max_characters: int) -> list[Part]:
    """Return the parts with at most `max_characters` characters of text, and a note if there were more."""
    left = max_characters
    kept: list[Part] = []
    for part in parts:
        if part["type"] == "text":
            text, left = part["text"], left - len(part["text"])
            kept.append({"type": "text", "text": text if left >= 0 else text[: max(0, len(text) + left)]})
            if left < 0:
                total = sum(len(part["text"]) for part in parts if part["type"] == "text")
                note = f"[the result was cut after {max_characters:,} of {total:,} characters]"
                return [*kept, {"type": "text", "text": note}]
        else:
            kept.append(part)
    return kept


def _part(block: Any) -> Part:
    kind = block.type
    if kind == "text":
        return {"type": "text", "text": block.text}
    if kind == "image":
        try:
            return {"type": "image", "image": base64.b64decode(block.data)}
        except ValueError:
            return {"type": "text", "text": "[an image that cannot be decoded]"}
    if kind == "resource" and getattr(block.resource, "text", None) is not None:
        return {"type": "text", "text": block.resource.text}
    where = getattr(block, "uri", None) or getattr(getattr(block, "resource", None), "uri", "")
    return {"type": "text", "text": f"[{kind}{f' {where}' if where else ''}]"}


def _end_all() -> None:
    """Stop all servers when the process exits."""
    sessions = [session for session in _open_sessions if session.open]
    if not sessions:
        return

    async def end() -> None:
        await asyncio.gather(*(session.end() for session in sessions), return_exceptions=True)

    try:
        on_tool_loop(end()).result(timeout=EXIT_TIMEOUT)
    except (FutureTimeout, RuntimeError):
        for session in sessions:
            session.kill()

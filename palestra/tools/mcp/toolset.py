"""McpTools: the tools of MCP servers as tools of an environment, with a session an episode or one for all."""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import os
import weakref
from asyncio import wrap_future
from collections.abc import Mapping, Sequence
from concurrent.futures import TimeoutError as TookTooLong
from pathlib import Path
from typing import Any

from palestra.errors import BadValue, InfrastructureError, ToolFailed
from palestra.optional import require
from palestra.tools.base import Tool, ToolResult, Toolset, on_tool_loop
from palestra.tools.mcp.connection import Connection, Limits, Listed
from palestra.tools.mcp.servers import Server, servers_of
from palestra.types import Part

SESSIONS = ("episode", "shared")

_listings: dict[Server, tuple[Listed, ...]] = {}  # asked once a process
_shared: dict[tuple[Server, Limits], Session] = {}
_living: weakref.WeakSet[Session] = weakref.WeakSet()


class Session:
    """A server as one episode, or all that share it, knows it: connected when needed, and again when it broke."""

    def __init__(self, server: Server, limits: Limits, *, stateful: bool) -> None:
        self._connection: Connection | None = None
        self.server = server
        self.limits = limits
        self.stateful = stateful
        self._lock: asyncio.Lock | None = None
        self._pid = os.getpid()
        if not _living:
            atexit.register(_end_all)
        _living.add(self)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        connection = self._connection
        if connection is None or not connection.alive:
            connection = await self._renewed()
        try:
            return await connection.call(name, arguments)
        except InfrastructureError:
            if not connection.alive and self._connection is connection:
                self._connection = None  # its failure is told; the next call starts afresh
                await connection.abandon("it failed")
            raise

    async def listing(self) -> tuple[Listed, ...]:
        if self.server not in _listings:
            connection = self._connection
            if connection is None or not connection.alive:
                connection = await self._renewed()
            _listings[self.server] = connection.tools
        return _listings[self.server]

    async def _renewed(self) -> Connection:
        if self._pid != os.getpid():  # a forked child has neither the loop nor the right to the pipes
            self._pid, self._lock, self._connection = os.getpid(), None, None
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            before = self._connection
            if before is not None and before.alive:
                return before  # somebody else was quicker
            self._connection = None
            if before is not None:
                await before.abandon("it failed")
            if before is not None and self.stateful and before.calls:
                raise ToolFailed(
                    f"the MCP server {self.server.name} is gone since the last call ({before.notes.over}), and what it "
                    f"kept for this episode with it{before.notes.told()}"
                )
            made = Connection(self.server, self.limits)
            await made.start()
            self._connection = made
            return made

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
        if self._connection is not None:  # nobody closed it, and now nobody can
            self._connection.forget()

    def handed_over(self, to: Session) -> None:
        """A connection nobody has called yet is as good as new; the next episode may have it."""
        if self.open and not self.used:
            to._connection, self._connection = self._connection, None


class McpTools(Toolset):
    """The tools of one MCP server, or of several.

    `source` is a command ("uvx mcp-server-time"), an address ("http://localhost:8000/mcp"), a JSON file with
    `mcpServers` as other clients read it, or what stands in such a file.

    `session="episode"`: each episode has a session of its own, and a server of its own where we start it, from its
    first call on. `"shared"`: all of them use one, for servers that keep no state. A call that takes more than
    `timeout` seconds fails, and so does a start that takes more than `start_timeout`; a server that died or hangs is
    started again for the next call. `only` names the tools that are wanted. Tools of several servers that have the same
    name get the server's in front: `files__read`.
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any] | Sequence[str],
        *,
        session: str = "episode",
        timeout: float = 60.0,
        start_timeout: float = 60.0,
        only: Sequence[str] | None = None,
    ) -> None:
        require("mcp", extra="mcp")
        if session not in SESSIONS:
            raise BadValue(f"session is one of {', '.join(SESSIONS)}, got {session!r}")
        if timeout <= 0 or start_timeout <= 0:
            raise BadValue("timeout and start_timeout are above 0 seconds")
        self.servers = servers_of(source)
        self.limits = Limits(call=timeout, start=start_timeout)
        self.session = session
        self.only = tuple(only) if only is not None else None
        self._tools: tuple[McpTool, ...] | None = None
        self._sessions = self._made_sessions()

    def _made_sessions(self) -> tuple[Session, ...]:
        if self.session == "episode":
            return tuple(Session(server, self.limits, stateful=True) for server in self.servers)
        for server in self.servers:
            _shared.setdefault((server, self.limits), Session(server, self.limits, stateful=False))
        return tuple(_shared[server, self.limits] for server in self.servers)

    @property
    def tools(self) -> Sequence[Tool]:
        if self._tools is None:
            self._tools = on_tool_loop(self._learnt()).result()
        return self._tools

    async def _learnt(self) -> tuple[McpTool, ...]:
        listings = await asyncio.gather(*(session.listing() for session in self._sessions))
        counts: dict[str, int] = {}
        for listed in (listed for listing in listings for listed in listing):
            counts[listed.name] = counts.get(listed.name, 0) + 1
        found = [
            McpTool(
                listed, session, f"{session.server.name}__{listed.name}" if counts[listed.name] > 1 else listed.name
            )
            for session, listing in zip(self._sessions, listings, strict=True)
            for listed in listing
        ]
        if self.only is None:
            return tuple(found)
        missing = set(self.only) - {tool.name for tool in found}
        if missing:
            known = ", ".join(tool.name for tool in found)
            raise BadValue(f"no tool {', '.join(sorted(missing))} on these MCP servers; there are: {known}")
        return tuple(tool for tool in found if tool.name in self.only)

    def open(self, *, seed: int) -> McpTools:  # noqa: ARG002  # a server knows no seed
        return self._fresh() if self.session == "episode" else self

    async def aopen(self, *, seed: int) -> McpTools:
        return self.open(seed=seed)

    def _fresh(self) -> McpTools:
        twin = object.__new__(McpTools)
        twin.__dict__.update(self.__dict__)
        twin._sessions = twin._made_sessions()
        for mine, its in zip(self._sessions, twin._sessions, strict=True):
            mine.handed_over(its)
        if self._tools is not None:
            of = dict(zip(self._sessions, twin._sessions, strict=True))
            twin._tools = tuple(McpTool(tool.listed, of[tool.session], tool.name) for tool in self._tools)
        return twin

    def close(self) -> None:
        if self.session == "episode" and any(session.open for session in self._sessions):
            on_tool_loop(self._ended()).result()

    async def aclose(self) -> None:
        if self.session == "episode" and any(session.open for session in self._sessions):
            await wrap_future(on_tool_loop(self._ended()))

    async def _ended(self) -> None:
        await asyncio.gather(*(session.end() for session in self._sessions))

    def fork(self) -> McpTools:
        if self.session == "shared":
            return self
        if any(session.used for session in self._sessions):
            raise BadValue(
                "an episode that has called an MCP server cannot be copied: what the server keeps is out of reach. "
                "For a server that keeps nothing, use McpTools(..., session='shared')"
            )
        return self._fresh()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sessions": (), "_tools": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._sessions = self._made_sessions()


class McpTool(Tool):
    """A tool on an MCP server."""

    def __init__(self, listed: Listed, session: Session, name: str) -> None:
        self.listed = listed
        self.session = session
        self.name = name
        self.description = listed.description
        self.parameters = listed.parameters

    async def call(self, **arguments: Any) -> ToolResult:
        return _result(await self.session.call(self.listed.name, arguments))


def _result(said: Any) -> ToolResult:
    """What the server answered, as a model can read it: text and pictures; the rest is named."""
    parts = [_part(block) for block in said.content]
    if not parts and said.structured_content is not None:
        parts = [{"type": "text", "text": json.dumps(said.structured_content, ensure_ascii=False)}]
    ok = not said.is_error
    if all(part["type"] == "text" for part in parts):
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        return ToolResult(text=text if ok or text.startswith("Error") else f"Error: {text}", ok=ok)
    return ToolResult(text=parts, ok=ok)


def _part(block: Any) -> Part:
    kind = block.type
    if kind == "text":
        return {"type": "text", "text": block.text}
    if kind == "image":
        try:
            return {"type": "image", "image": base64.b64decode(block.data)}
        except ValueError:
            return {"type": "text", "text": "[a picture that cannot be read]"}
    if kind == "resource" and getattr(block.resource, "text", None) is not None:
        return {"type": "text", "text": block.resource.text}
    where = getattr(block, "uri", None) or getattr(getattr(block, "resource", None), "uri", "")
    return {"type": "text", "text": f"[{kind}{f' {where}' if where else ''}]"}


def _end_all() -> None:
    """At exit: no server stays behind."""
    sessions = [session for session in _living if session.open]
    if not sessions:
        return

    async def ended() -> None:
        await asyncio.gather(*(session.end() for session in sessions), return_exceptions=True)

    try:
        on_tool_loop(ended()).result(timeout=10)
    except (TookTooLong, RuntimeError):
        return

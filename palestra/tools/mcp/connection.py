"""Connection to one MCP server: connect, call tools, detect failures, disconnect.

Runs on the event loop that all async tools share.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from palestra import __version__
from palestra.errors import InfrastructureError, PalestraError, ToolFailed
from palestra.optional import require
from palestra.tools.base import BadCall
from palestra.tools.mcp.servers import HttpServer, Server, StdioServer
from palestra.tools.mcp.stdio import ServerStatus, kill, stdio_transport

_PROBE_TIMEOUT = 5.0  # seconds within which a server must list its tools after a call has timed out
_MAX_PAGES = 100  # maximum number of pages in a server's list of tools
_HTTP_ERROR = "Server returned an error response"  # the SDK's message for HTTP status 4xx or 5xx


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts in seconds."""

    call: float = 60.0
    start: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescription:
    """Description of a tool, as returned by its server."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class McpConnection:
    """A session with one server, from `start` to `stop`. It does not reconnect; create a new connection instead."""

    def __init__(self, server: Server, timeouts: Timeouts) -> None:
        self.server = server
        self.timeouts = timeouts
        self.status = ServerStatus()
        self.tools: tuple[ToolDescription, ...] = ()
        self.calls = 0
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    @property
    def alive(self) -> bool:
        connected = self._task is not None and not self._task.done() and self._client is not None
        return connected and not self.status.ended and self._pid == os.getpid()

    async def start(self) -> None:
        """Connect and list the tools."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready))
        try:
            await asyncio.wait_for(asyncio.shield(ready), self.timeouts.start)
        except TimeoutError:
            message = f"{self._name} was not ready within {self.timeouts.start:g} s{self.status.details()}"
            await self.abandon(message)
            ready.cancel()
            raise ToolFailed(message) from None
        except asyncio.CancelledError:
            await self.abandon("its start was canceled")
            raise

    async def stop(self) -> None:
        """End the session, and stop the server if this connection started it."""
        if self._task is not None and self._pid == os.getpid():
            self._stop.set()
            await asyncio.wait([self._task], timeout=60)

    def stop_soon(self) -> None:
        """Request a stop from any thread, without waiting for it."""
        if self._pid == os.getpid():
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stop.set)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Return the SDK's result; raise BadCall if the server rejects the call, ToolFailed if the server fails."""
        errors, types = require("mcp", extra="mcp").MCPError, require("mcp_types", extra="mcp")
        loop = asyncio.get_running_loop()
        start = loop.time()
        self.calls += 1
        try:
            return await self._client.call_tool(name, dict(arguments), read_timeout_seconds=self.timeouts.call)
        except errors as err:
            if err.code == types.CONNECTION_CLOSED and self._task is not None:
                await asyncio.wait([self._task], timeout=0.2)  # give `status` time to record the reason
            elif self._session_lost(err):
                await self.abandon(str(err))
            if not self.alive:
                raise ToolFailed(f"{self._name} disconnected before it replied to {name}: {self._reason}") from err
            if loop.time() - start >= self.timeouts.call * 0.99:
                raise ToolFailed(await self._timed_out(name)) from err
            raise BadCall(f"{name}: {err}") from err
        except Exception as err:
            # The SDK raises various exceptions for invalid replies and broken connections.
            if isinstance(err, InfrastructureError):
                raise
            raise ToolFailed(f"{self._name}, {name}: {_describe(err)}{self.status.details()}") from err

    def _session_lost(self, err: Any) -> bool:
        """Return whether an error was caused by the connection to an HTTP server and not by the call itself."""
        types = require("mcp_types", extra="mcp")
        connection_error = err.code in (types.PARSE_ERROR, types.INVALID_REQUEST) or str(err) == _HTTP_ERROR
        return isinstance(self.server, HttpServer) and connection_error

    @property
    def _name(self) -> str:
        return f"the MCP server {self.server.name}"

    @property
    def _reason(self) -> str:
        return f"{self.status.ended or 'the connection was lost'}{self.status.details()}"

    async def _timed_out(self, name: str) -> str:
        """Return the error message for a call that timed out, and disconnect if the server does not respond at all."""
        message = f"{self._name} did not reply to {name} within {self.timeouts.call:g} s"
        try:
            await asyncio.wait_for(self._client.list_tools(), min(_PROBE_TIMEOUT, self.timeouts.call))
        except Exception:  # noqa: BLE001  # any failure means that the server does not respond
            retry = "restarted" if isinstance(self.server, StdioServer) else "reconnected"
            message = f"{message} or to other requests; it will be {retry} for the next call{self.status.details()}"
            await self.abandon(message)
        return message

    async def abandon(self, reason: str) -> None:
        """Close the connection immediately, and kill the server if this connection started it."""
        self.status.ended = self.status.ended or reason
        self._stop.set()
        if self._task is None:
            return
        if isinstance(self.server, StdioServer):
            kill(self.status)  # closes the server's streams, so that all pending requests fail
        done, _ = await asyncio.wait([self._task], timeout=0.2 if not isinstance(self.server, StdioServer) else 30)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=30)

    async def _run(self, ready: asyncio.Future[None]) -> None:
        """Run the whole session in one task, because the SDK's contexts must be entered and exited by the same task."""
        mcp = require("mcp", extra="mcp")
        types = require("mcp_types", extra="mcp")
        client_info = types.Implementation(name="palestra", version=__version__)
        try:
            async with mcp.Client(self._transport(), client_info=client_info, cache=None) as client:
                self.tools = tuple([tool async for tool in _list_tools(client)])
                self._client = client
                if not ready.done():
                    ready.set_result(None)
                await self._stop.wait()
        except BaseException as err:
            if not ready.done():
                ready.set_exception(self._start_error(err))
            self.status.ended = self.status.ended or _describe(err)
            if not isinstance(err, Exception):
                raise
        finally:
            self._client = None
            self.status.ended = self.status.ended or "it was closed"

    def _start_error(self, err: BaseException) -> PalestraError:
        first = next(_leaves(err))
        if isinstance(first, PalestraError):
            return first
        reason = self.status.ended or _describe(first)
        return ToolFailed(f"{self._name} cannot be used: {reason}{self.status.details()}")

    def _transport(self) -> Any:
        if isinstance(self.server, StdioServer):
            return stdio_transport(self.server, self.status)
        headers = dict(self.server.headers)
        if self.server.sse:
            return require("mcp.client.sse", extra="mcp").sse_client(self.server.url, headers=headers)
        return _http_transport(self.server.url, headers)


@asynccontextmanager
async def _http_transport(url: str, headers: dict[str, str]) -> AsyncIterator[Any]:
    http = require("mcp.client.streamable_http", extra="mcp")
    async with (
        http.create_mcp_http_client(headers=headers) as client,
        http.streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


async def _list_tools(client: Any) -> AsyncIterator[ToolDescription]:
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            schema = tool.input_schema or {"type": "object", "properties": {}}
            description = tool.description or tool.title or tool.name
            yield ToolDescription(name=tool.name, description=description, parameters=schema)
        cursor = page.next_cursor
        if not cursor:
            return


def _leaves(err: BaseException) -> Iterator[BaseException]:
    """Iterate over the individual exceptions in nested exception groups."""
    if isinstance(err, BaseExceptionGroup):
        for inner in err.exceptions:
            yield from _leaves(inner)
    else:
        yield err


def _describe(err: BaseException) -> str:
    first = next(_leaves(err))
    with suppress(Exception):
        return f"{type(first).__name__}: {first}" if str(first) else type(first).__name__
    return type(first).__name__

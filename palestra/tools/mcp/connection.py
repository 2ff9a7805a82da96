"""A Server -> a session with it: started, asked, found to be dead or deaf, ended. All on the tools' event loop."""

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
from palestra.tools.mcp.program import Notes, kill, running
from palestra.tools.mcp.servers import Address, Program, Server

_PROBE = 5.0  # seconds to answer something easy, for a server that let a call time out
_PAGES = 100  # of a listing
_HTTP_ERROR = "Server returned an error response"  # the SDK's words for a status of 4xx or 5xx


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things may take, in seconds."""

    call: float = 60.0
    start: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One tool as its server describes it."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class Connection:
    """One session with one server, from `start` to `stop`. A dead one stays dead: make another."""

    def __init__(self, server: Server, limits: Limits) -> None:
        self.server = server
        self.limits = limits
        self.notes = Notes()
        self.tools: tuple[Listed, ...] = ()
        self.calls = 0
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()

    @property
    def alive(self) -> bool:
        running = self._task is not None and not self._task.done() and self._client is not None
        return running and not self.notes.over and self._pid == os.getpid()

    async def start(self) -> None:
        """Connect, and learn which tools there are."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._lived(ready))
        try:
            await asyncio.wait_for(asyncio.shield(ready), self.limits.start)
        except TimeoutError:
            said = f"{self._name} was not ready within {self.limits.start:g} s{self.notes.told()}"
            await self.abandon(said)
            ready.cancel()
            raise ToolFailed(said) from None
        except asyncio.CancelledError:
            await self.abandon("nobody waited for it")
            raise

    async def stop(self) -> None:
        """End the session, and the server where we started it."""
        if self._task is not None and self._pid == os.getpid():
            self._stop.set()
            await asyncio.wait([self._task], timeout=10)

    def forget(self) -> None:
        """`stop` for whoever cannot wait, on whatever thread."""
        if self._pid == os.getpid():
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._stop.set)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The SDK's result. BadCall: the server refuses the call; ToolFailed: the server is broken."""
        errors, types = require("mcp", extra="mcp").MCPError, require("mcp_types", extra="mcp")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self.calls += 1
        try:
            return await self._client.call_tool(name, dict(arguments), read_timeout_seconds=self.limits.call)
        except errors as err:
            if err.code == types.CONNECTION_CLOSED and self._task is not None:
                await asyncio.wait([self._task], timeout=0.2)  # until it is known why
            elif self._session_lost(err):
                await self.abandon(str(err))
            if not self.alive:
                raise ToolFailed(f"{self._name} is gone, {name} got no answer: {self._why}") from err
            if loop.time() - begun >= self.limits.call * 0.99:
                raise ToolFailed(await self._timed_out(name)) from err
            raise BadCall(f"{name}: {err}") from err
        except Exception as err:
            # Whatever the SDK makes of an answer that is against the protocol, or of a connection that breaks.
            if isinstance(err, InfrastructureError):
                raise
            raise ToolFailed(f"{self._name}, {name}: {_said(err)}{self.notes.told()}") from err

    def _session_lost(self, err: Any) -> bool:
        """Errors the SDK itself makes of what an HTTP server answers: not of the call, but of the connection."""
        types = require("mcp_types", extra="mcp")
        stands_for = err.code in (types.PARSE_ERROR, types.INVALID_REQUEST) or str(err) == _HTTP_ERROR
        return isinstance(self.server, Address) and stands_for

    @property
    def _name(self) -> str:
        return f"the MCP server {self.server.name}"

    @property
    def _why(self) -> str:
        return f"{self.notes.over or 'the connection was lost'}{self.notes.told()}"

    async def _timed_out(self, name: str) -> str:
        """What to say of a call that took too long; a server that answers nothing else either is ended."""
        said = f"{self._name} did not answer {name} within {self.limits.call:g} s"
        try:
            await asyncio.wait_for(self._client.list_tools(), min(_PROBE, self.limits.call))
        except Exception:  # noqa: BLE001  # whatever it is, it is no answer
            again = "started" if isinstance(self.server, Program) else "connected to"
            told = f"{said}, nor anything else; it is {again} again for the next call{self.notes.told()}"
            await self.abandon(told)
            return told
        return said

    async def abandon(self, why: str) -> None:
        """End it without waiting for its consent."""
        self.notes.over = self.notes.over or why
        self._stop.set()
        if self._task is None:
            return
        if isinstance(self.server, Program):
            kill(self.notes)  # its streams end, and with them whatever waits for it
        done, _ = await asyncio.wait([self._task], timeout=0.2 if not isinstance(self.server, Program) else 5)
        if not done:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=5)

    async def _lived(self, ready: asyncio.Future[None]) -> None:
        """The whole life in one task, as the SDK's scopes must be left by the task that entered them."""
        mcp = require("mcp", extra="mcp")
        types = require("mcp_types", extra="mcp")
        who = types.Implementation(name="palestra", version=__version__)
        try:
            async with mcp.Client(self._transport(), client_info=who, cache=None) as client:
                self.tools = tuple([tool async for tool in _listed(client)])
                self._client = client
                if not ready.done():
                    ready.set_result(None)
                await self._stop.wait()
        except BaseException as err:
            if not ready.done():
                ready.set_exception(self._failed(err))
            self.notes.over = self.notes.over or _said(err)
            if not isinstance(err, Exception):
                raise
        finally:
            self._client = None
            self.notes.over = self.notes.over or "it was closed"

    def _failed(self, err: BaseException) -> PalestraError:
        first = next(_leaves(err))
        if isinstance(first, PalestraError):
            return first
        why = self.notes.over or _said(first)
        return ToolFailed(f"{self._name} cannot be used: {why}{self.notes.told()}")

    def _transport(self) -> Any:
        if isinstance(self.server, Program):
            return running(self.server, self.notes)
        headers = dict(self.server.headers)
        if self.server.sse:
            return require("mcp.client.sse", extra="mcp").sse_client(self.server.url, headers=headers)
        return _over_http(self.server.url, headers)


@asynccontextmanager
async def _over_http(url: str, headers: dict[str, str]) -> AsyncIterator[Any]:
    http = require("mcp.client.streamable_http", extra="mcp")
    async with (
        http.create_mcp_http_client(headers=headers) as client,
        http.streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


async def _listed(client: Any) -> AsyncIterator[Listed]:
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            schema = tool.input_schema or {"type": "object", "properties": {}}
            yield Listed(name=tool.name, description=tool.description or tool.title or tool.name, parameters=schema)
        cursor = page.next_cursor
        if not cursor:
            return


def _leaves(err: BaseException) -> Iterator[BaseException]:
    """What went wrong, out of the groups that task groups wrap it in."""
    if isinstance(err, BaseExceptionGroup):
        for inner in err.exceptions:
            yield from _leaves(inner)
    else:
        yield err


def _said(err: BaseException) -> str:
    first = next(_leaves(err))
    with suppress(Exception):
        return f"{type(first).__name__}: {first}" if str(first) else type(first).__name__
    return type(first).__name__

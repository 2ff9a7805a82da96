"""One HTTP request: what routes need of it, and how it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeAlias

from palestra.remote.protocol import JSON, MSGPACK, Fault, encoder, fault, status_of
from palestra.server.auth import Visitor
from palestra.server.sessions import Result

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

POUR = 20.0  # seconds that a body which is too large anyway may go on
TYPES = {kind: (b"content-type", kind.encode()) for kind in (JSON, MSGPACK)}


class HttpRequest:
    """One HTTP request: what routes need of it, and how to answer it."""

    __slots__ = (
        "_limit",
        "_receive",
        "_send",
        "accept",
        "answered",
        "headers",
        "kind",
        "method",
        "path",
        "query",
        "visitor",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, visitor: Visitor, limit: int) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.visitor = visitor
        self.kind = visitor.kind  # of the body: JSON, MSGPACK or ""
        self.accept = visitor.accept  # of the answer
        self._receive = receive
        self._send = send
        self._limit = limit

    async def body(self) -> bytes:
        """All of it; raises Refused where it is too large, Gone where the client is."""
        if self.visitor.length > self._limit:
            await self._pour_away()
            raise Refused(too_large(self._limit))
        message = await self._receive()
        data: bytes = message.get("body", b"")
        if message.get("more_body"):
            parts, size = [data], len(data)
            while message.get("more_body"):
                message = await self._receive()
                part: bytes = message.get("body", b"")
                size += len(part)
                if size > self._limit:
                    parts.clear()
                    await self._pour_away()
                    raise Refused(too_large(self._limit))
                parts.append(part)
            data = b"".join(parts)
        if message["type"] == "http.disconnect":
            raise Gone
        return data

    async def _pour_away(self) -> None:
        """Take the rest of a body, for a while: most clients listen only when they have said everything."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POUR):
                while (await self._receive()).get("more_body"):
                    pass

    async def answer(self, status: int, body: bytes, *headers: tuple[bytes, bytes], kind: str | None = None) -> None:
        written = TYPES.get(kind or self.accept) or (b"content-type", (kind or "").encode())
        all_ = [written, (b"content-length", b"%d" % len(body)), *headers]
        if self.visitor.request_id:
            all_.append((b"x-request-id", self.visitor.request_id))
        await self._send({"type": "http.response.start", "status": status, "headers": all_})
        await self._send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})

    async def tell(self, result: Result, status: int = 200) -> None:
        """An answer of the desk's."""
        if isinstance(result, Fault):
            headers: list[tuple[bytes, bytes]] = []
            if isinstance(result.retry_after, float):
                headers.append((b"retry-after", b"%d" % max(1, round(result.retry_after))))
            if result.code == "unauthorized":
                headers.append((b"www-authenticate", b"Bearer"))
            elif result.code == "not_allowed":
                headers.append((b"allow", result.message.removeprefix("use ").encode()))
            await self.answer(status_of(result), encoder(self.accept)({"error": result}), *headers)
        else:
            await self.answer(status, result)

    async def value(self, data: Any, status: int = 200) -> None:
        """Plain data."""
        await self.answer(status, encoder(self.accept)(data))


class Refused(Exception):
    """A request that is answered with `args[0]`."""

    @property
    def fault(self) -> Fault:
        found: Fault = self.args[0]
        return found


class Gone(Exception):
    """The client hung up."""


def too_large(limit: int) -> Fault:
    return fault("too_large", f"a request has at most {limit:,} bytes")


def not_found() -> Fault:
    return fault("not_found", "nothing is there; GET /openapi.json tells what is")


def not_allowed(methods: str) -> Fault:
    return fault("not_allowed", f"use {methods}")

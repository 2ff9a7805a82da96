"""Read the body of an HTTP request and send its response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from palestra.remote.protocol import JSON, MSGPACK, Fault, encoder, fault, status_of
from palestra.server.auth import Client
from palestra.server.budget import FREE, ByteBudget
from palestra.server.responses import envelope
from palestra.server.sessions import Result

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

CHUNK = 1 << 18  # maximum number of bytes that are written to a connection at once
DISCARD_TIMEOUT = 20.0  # seconds to receive and discard a body that is too large
CONTENT_TYPES = {media_type: (b"content-type", media_type.encode()) for media_type in (JSON, MSGPACK)}


class HttpRequest:
    """HTTP request, with methods to read its body and to send the response."""

    __slots__ = (
        "_account",
        "_held",
        "_max_body",
        "_receive",
        "_send",
        "accept",
        "client",
        "content_type",
        "headers",
        "method",
        "path",
        "query",
    )

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, client: Client, max_body: int, budget: ByteBudget
    ) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: Headers = scope["headers"]
        self.client = client
        self.content_type = client.content_type  # JSON, MSGPACK, or "" for any other type
        self.accept = client.accept
        self._receive = receive
        self._send = send
        self._max_body = max_body
        self._account = budget.of(client.owner)
        self._held = 0  # bytes of the request's body that count towards the budget

    async def body(self) -> bytes:
        """Return the body. Raise RequestError if it is too large, or ClientDisconnected if the client disconnects."""
        if self.client.content_length > self._max_body:
            await self._discard_body()
            raise RequestError(too_large(self._max_body))
        if self.client.content_length > FREE:
            await self._hold(self.client.content_length)
        message = await self._receive()
        data: bytes = message.get("body", b"")
        if message.get("more_body"):
            parts, size = [data], len(data)
            while message.get("more_body"):
                message = await self._receive()
                part: bytes = message.get("body", b"")
                size += len(part)
                if size > self._max_body:
                    parts.clear()
                    await self._discard_body()
                    raise RequestError(too_large(self._max_body))
                if size > FREE and size > self._held:
                    try:
                        await self._hold(size - self._held)
                    except RequestError:
                        parts.clear()
                        raise
                parts.append(part)
            data = b"".join(parts)
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        return data

    async def _hold(self, size: int) -> None:
        """Count `size` bytes of the body until the response is ready. If a limit is reached, refuse the request."""
        if not self._account.take(size):
            await self._discard_body()
            raise RequestError(self._account.refusal())
        self._held += size

    def release(self) -> None:
        """Stop counting the request's body. May be called more than once."""
        self._account.give_back(self._held)
        self._held = 0

    async def _discard_body(self) -> None:
        """Receive and discard the rest of the body, because most clients send it before they read the response."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_TIMEOUT):
                while (await self._receive()).get("more_body"):
                    pass

    async def send(
        self, status: int, body: bytes, *headers: tuple[bytes, bytes], content_type: str | None = None
    ) -> None:
        """Send a response. The default content type is the one that the client accepts."""
        header = CONTENT_TYPES.get(content_type or self.accept) or (b"content-type", (content_type or "").encode())
        all_headers = [header, (b"content-length", b"%d" % len(body)), *headers]
        if self.client.request_id:
            all_headers.append((b"x-request-id", self.client.request_id))
        await self._send({"type": "http.response.start", "status": status, "headers": all_headers})
        if self.method == "HEAD":
            body = b""
        sent = 0
        while len(body) - sent > CHUNK:  # a whole body would be copied if the client reads slowly
            await self._send({"type": "http.response.body", "body": body[sent : sent + CHUNK], "more_body": True})
            sent += CHUNK
        await self._send({"type": "http.response.body", "body": body[sent:] if sent else body})

    def check_budget(self) -> None:
        """Refuse a request that could have a large response if the client has too many bytes in flight."""
        if self._account.full:
            raise RequestError(self._account.refusal())

    async def send_result(self, result: Result, status: int = 200, *, refuse: bool = True) -> None:
        """Send an encoded result or an error. A large result counts towards the client's budget until it is sent.

        If the budget does not suffice, an error is sent instead, unless `refuse` is False.
        """
        if self._held:
            self.release()
        if not isinstance(result, Fault):
            size = len(result)
            if size <= FREE:
                await self.send(status, result)
                return
            allowed = self._account.take(size)
            if not allowed and not refuse:
                self._account.add(size)
            if allowed or not refuse:
                try:
                    await self.send(status, result)
                finally:
                    self._account.give_back(size)
                return
            result = self._account.refusal()
        body = encoder(self.accept)({"error": result})
        await self.send(status_of(result), body, *error_headers(result))

    async def send_responses(self, ids: Sequence[str], results: Sequence[Result]) -> None:
        """Send the results of a batch. Results for which the client's budget does not suffice become errors."""
        self.release()
        taken = 0
        responses = []
        try:
            for request_id, result in zip(ids, results, strict=True):
                size = len(result) if isinstance(result, bytes) else 0
                if size and not self._account.take(size):
                    responses.append(envelope(request_id, self._account.refusal()))
                else:
                    taken += size
                    responses.append(envelope(request_id, result))
            await self.send_value({"responses": responses})
        finally:
            self._account.give_back(taken)

    async def send_value(self, value: Any, status: int = 200) -> None:
        """Encode and send a value."""
        await self.send(status, encoder(self.accept)(value))


class RequestError(Exception):
    """Raised to respond to a request with the error `fault`."""

    def __init__(self, error: Fault) -> None:
        super().__init__(error.message)
        self.fault = error


class ClientDisconnected(Exception):
    """Raised if the client closes the connection before its request is complete."""


def error_headers(error: Fault) -> Headers:
    """Return the additional headers for an error response."""
    headers: Headers = []
    if isinstance(error.retry_after, float):
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
    if error.code == "unauthorized":
        headers.append((b"www-authenticate", b"Bearer"))
    elif error.code == "not_allowed":
        headers.append((b"allow", error.message.removeprefix("use ").encode()))
    return headers


def too_large(limit: int) -> Fault:
    return fault("too_large", f"a request may have at most {limit:,} bytes")


def not_found() -> Fault:
    return fault("not_found", "no such path; GET /openapi.json describes all paths")


def not_allowed(methods: str) -> Fault:
    return fault("not_allowed", f"use {methods}")

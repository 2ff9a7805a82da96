"""Serve many sessions over one WebSocket.

A message contains one request or a list of requests. Text messages are JSON, binary messages are msgpack. Every
response contains the id of its request. Responses are sent as soon as they are ready, and several ready responses are
sent as one list. Sessions stay open when the connection is closed, so a client can reconnect and continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from palestra.remote import protocol
from palestra.remote.protocol import JSON, MSGPACK, Fault, Request, Response, Steps, encode_json, encode_msgpack, fault
from palestra.server.auth import Client
from palestra.server.budget import FREE, ClientBudget
from palestra.server.dispatcher import Dispatcher
from palestra.server.request import Receive, Send
from palestra.server.responses import envelope
from palestra.server.sessions import Respond, Result

log = logging.getLogger("palestra.server")
MAX_UNSENT = 100_000  # maximum number of queued responses per client
MAX_REQUESTS = 4_096  # maximum number of requests per message
BACKLOG_PAUSE = 0.05  # seconds between checks of whether a client has read enough responses
MAX_MESSAGE = 1 << 20  # maximum size of several responses in one message, in bytes
_MEDIA_TYPES = (JSON, MSGPACK)
_DECODE: dict[str, Any] = {m: protocol.decoder(m, list[Request] | Request) for m in _MEDIA_TYPES}
_DECODE_ONE: dict[str, Any] = {m: protocol.decoder(m, Request) for m in _MEDIA_TYPES}
_DECODE_RAW: dict[str, Any] = {m: protocol.decoder(m, list[msgspec.Raw]) for m in _MEDIA_TYPES}
_DECODE_ANY: dict[str, Any] = {m: protocol.decoder(m, Any) for m in _MEDIA_TYPES}
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


async def serve_websocket(dispatcher: Dispatcher, receive: Receive, send: Send, client: Client) -> None:
    """Accept a connection and serve it until the client disconnects."""
    await receive()
    await send({"type": "websocket.accept"})
    account = dispatcher.budget.of(client.owner)
    sender = ResponseSender(send, account)
    try:
        while True:
            message = await receive()
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            data = message["bytes"] if text is None else text
            media_type = MSGPACK if text is None else JSON
            size = len(data)
            while not account.take(size):  # the client must read responses first
                if sender.closed:
                    return
                await asyncio.sleep(BACKLOG_PAUSE)
            requests, errors = decode_message(data, media_type)
            for request_id, error in errors:
                dispatcher.stats.requests["websocket", error.code] += 1
                sender.add(media_type, request_id, error)
            large = None
            if size <= FREE or not requests:
                account.give_back(size)
            else:  # the actions in a large message use memory until all of its requests have finished
                large = LargeMessage(account, size, len(requests))
            for request in requests:
                vector = isinstance(request, Steps)
                respond: Respond = partial(sender.add_vector if vector else sender.add, media_type, request.id)
                if large is not None:
                    respond = partial(large.respond, respond)
                if vector and account.full:
                    respond(account.refusal())
                else:
                    dispatcher.submit(request, client.owner, media_type, respond)
            if log.isEnabledFor(logging.DEBUG):
                for request in requests:
                    extra = {"op": type(request).__name__.lower(), "session": getattr(request, "session", "")}
                    log.debug("request", extra={**extra, "request": request.id, "transport": "websocket"})
            dispatcher.stats.requests["websocket", "ok"] += len(requests)
            if sender.unsent > MAX_UNSENT:
                await send({"type": "websocket.close", "code": 1013, "reason": "the client does not read responses"})
                return
    finally:
        await sender.close()


def decode_message(data: bytes | str, media_type: str) -> tuple[list[Request], list[tuple[str, Fault]]]:
    """Return the valid requests in a message, and a pair of request id and error for each invalid request."""
    try:
        message = _DECODE[media_type](data)
    except _DECODE_ERRORS as err:
        return _decode_each(data, media_type, err)
    requests: list[Request] = message if isinstance(message, list) else [message]
    if not requests:
        return [], [("", fault("bad_request", "a message must contain at least one request"))]
    if len(requests) > MAX_REQUESTS:
        return [], [("", _too_many())]
    return requests, []


def _too_many() -> Fault:
    return fault("too_large", f"a message may contain at most {MAX_REQUESTS} requests")


def _decode_each(data: bytes | str, media_type: str, err: Exception) -> tuple[list[Request], list[tuple[str, Fault]]]:
    """Decode the requests in an invalid message one by one."""
    requests: list[Request] = []
    errors: list[tuple[str, Fault]] = []
    try:
        parts = _DECODE_RAW[media_type](data)
    except _DECODE_ERRORS:
        return [], [(_request_id(data, media_type), fault("bad_request", str(err)[:300]))]
    if len(parts) > MAX_REQUESTS:
        return [], [("", _too_many())]
    for part in parts:
        try:
            requests.append(_DECODE_ONE[media_type](part))
        except _DECODE_ERRORS as part_err:
            errors.append((_request_id(bytes(part), media_type), fault("bad_request", str(part_err)[:300])))
    return requests, errors


def _request_id(data: bytes | str, media_type: str) -> str:
    with suppress(*_DECODE_ERRORS):
        value = _DECODE_ANY[media_type](data)
        if isinstance(value, dict) and isinstance(value.get("id"), str):
            return str(value["id"])[:128]
    return ""


class LargeMessage:
    """Large message, whose size counts toward the budget until all of its requests have a response."""

    __slots__ = ("_account", "_missing", "_size")

    def __init__(self, account: ClientBudget, size: int, requests: int) -> None:
        self._account = account
        self._size = size
        self._missing = requests

    def respond(self, respond: Respond, result: Result) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._account.give_back(self._size)
        respond(result)


class ResponseSender:
    """Sends responses in the background. Responses that are ready at the same time are sent as one message.

    A message has at most `MAX_MESSAGE` bytes, unless a single response is larger. Responses for which the client's
    budget does not suffice are replaced with an error.
    """

    def __init__(self, send: Send, account: ClientBudget) -> None:
        self._send = send
        self.account = account
        self._queues: dict[str, deque[tuple[int, Response]]] = {JSON: deque(), MSGPACK: deque()}
        self._ready = asyncio.Event()
        self.closed = False  # whether responses are dropped, because the client has disconnected
        self._task = asyncio.create_task(self._run())

    @property
    def unsent(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, media_type: str, request_id: str, result: Result) -> None:
        if self.closed:
            return  # the client will reconnect and retry with the same id
        size = 0
        if isinstance(result, bytes):
            size = len(result)
            if not self.account.take(size):
                size, result = 0, self.account.refusal()
        self._queues[media_type].append((size, envelope(request_id, result)))
        self._ready.set()

    def add_vector(self, media_type: str, request_id: str, result: Result) -> None:
        """Add the response to a vector step, which is never refused."""
        if self.closed:
            return
        size = len(result) if isinstance(result, bytes) else 0
        self.account.add(size)
        self._queues[media_type].append((size, envelope(request_id, result)))
        self._ready.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._ready.wait()
                self._ready.clear()
                for media_type, queue in self._queues.items():
                    while queue:
                        await self._send_next(media_type, queue)
        finally:
            self.closed = True

    async def _send_next(self, media_type: str, queue: deque[tuple[int, Response]]) -> None:
        """Send the first responses in the queue as one message."""
        size, response = queue.popleft()
        responses = [response]
        while queue and size + queue[0][0] <= MAX_MESSAGE:
            more, response = queue.popleft()
            size += more
            responses.append(response)
        try:
            message: Any = responses[0] if len(responses) == 1 else responses
            if media_type == JSON:
                await self._send({"type": "websocket.send", "text": encode_json(message).decode()})
            else:
                await self._send({"type": "websocket.send", "bytes": encode_msgpack(message)})
        finally:
            self.account.give_back(size)
        if queue:
            await asyncio.sleep(0)  # let the server handle other clients between two large messages

    async def close(self) -> None:
        self.closed = True
        self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._task
        for queue in self._queues.values():
            self.account.give_back(sum(size for size, _ in queue))
            queue.clear()

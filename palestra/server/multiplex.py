"""Serve many sessions over one WebSocket.

A message contains one request or a list of requests. Text messages are JSON, binary messages are msgpack. Every
response contains the id of its request. Responses are sent as soon as they are ready, and several ready responses are
sent as one list. Sessions stay open when the connection is closed, so a client can reconnect and continue.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from palestra.remote import protocol
from palestra.remote.protocol import JSON, MSGPACK, Fault, Request, Response, encode_json, encode_msgpack, fault
from palestra.server.auth import Client
from palestra.server.dispatcher import Dispatcher
from palestra.server.request import Receive, Send
from palestra.server.responses import envelope
from palestra.server.sessions import Result

log = logging.getLogger("palestra.server")
MAX_UNSENT = 100_000  # maximum number of queued responses per client
MAX_REQUESTS = 4_096  # maximum number of requests per message
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
    sender = ResponseSender(send)
    try:
        while True:
            message = await receive()
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            data = message["bytes"] if text is None else text
            media_type = MSGPACK if text is None else JSON
            requests, errors = decode_message(data, media_type)
            for request_id, error in errors:
                dispatcher.stats.requests["websocket", error.code] += 1
                sender.add(media_type, request_id, error)
            for request in requests:
                dispatcher.submit(request, client.owner, media_type, partial(sender.add, media_type, request.id))
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


class ResponseSender:
    """Sends responses in the background. All responses that are ready at the same time are sent as one message."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._queues: dict[str, list[Response]] = {JSON: [], MSGPACK: []}
        self._ready = asyncio.Event()
        self._closed = False
        self._task = asyncio.create_task(self._run())

    @property
    def unsent(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, media_type: str, request_id: str, result: Result) -> None:
        if self._closed:
            return  # the client will reconnect and retry with the same id
        self._queues[media_type].append(envelope(request_id, result))
        self._ready.set()

    async def _run(self) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            for media_type, queue in self._queues.items():
                if not queue:
                    continue
                responses = queue[:]
                queue.clear()
                message: Any = responses[0] if len(responses) == 1 else responses
                if media_type == JSON:
                    await self._send({"type": "websocket.send", "text": encode_json(message).decode()})
                else:
                    await self._send({"type": "websocket.send", "bytes": encode_msgpack(message)})

    async def close(self) -> None:
        self._closed = True
        self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._task

"""One socket for many sessions: requests in, answers out, each with its id, in whatever order they are done.

A message is one request or a list of them, JSON in text and msgpack in binary messages; answers that are ready together
are sent together, as a list. Sessions do not hang on the socket: a client that comes back goes on with them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from palestra.remote import protocol
from palestra.remote.protocol import JSON, MSGPACK, Fault, Request, Response, encode_json, encode_msgpack, fault
from palestra.server.auth import Visitor
from palestra.server.dispatcher import Desk
from palestra.server.responses import answered
from palestra.server.sessions import Result

log = logging.getLogger("palestra.server")
MOST_WAITING = 100_000  # answers that a client has not taken
MOST_AT_ONCE = 4_096  # requests in one message
_READ: dict[str, Any] = {kind: protocol.decoder(kind, list[Request] | Request) for kind in (JSON, MSGPACK)}
_READ_ONE: dict[str, Any] = {kind: protocol.decoder(kind, Request) for kind in (JSON, MSGPACK)}
_READ_RAW: dict[str, Any] = {kind: protocol.decoder(kind, list[msgspec.Raw]) for kind in (JSON, MSGPACK)}
_READ_ANY: dict[str, Any] = {kind: protocol.decoder(kind, Any) for kind in (JSON, MSGPACK)}

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def talk(desk: Desk, receive: Receive, send: Send, visitor: Visitor) -> None:
    """Until the client hangs up."""
    await receive()
    await send({"type": "websocket.accept"})
    speaker = Speaker(send)
    try:
        while True:
            message = await receive()
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            data = message["bytes"] if text is None else text
            kind = MSGPACK if text is None else JSON
            asks, refusals = read(data, kind)
            for name, refusal in refusals:
                desk.stats.requests["socket", refusal.code] += 1
                speaker.add(kind, name, refusal)
            for ask in asks:
                desk.submit(ask, visitor.owner, kind, partial(speaker.add, kind, ask.id))
            if log.isEnabledFor(logging.DEBUG):
                for ask in asks:
                    extra = {"op": type(ask).__name__.lower(), "session": getattr(ask, "session", "")}
                    log.debug("request", extra={**extra, "request": ask.id, "over": "socket"})
            desk.stats.requests["socket", "ok"] += len(asks)
            if speaker.waiting > MOST_WAITING:
                await send({"type": "websocket.close", "code": 1013, "reason": "answers are not being read"})
                return
    finally:
        await speaker.close()


def read(data: bytes | str, kind: str) -> tuple[list[Request], list[tuple[str, Fault]]]:
    """The requests of a message, and what is wrong with the others, by their ids."""
    try:
        found = _READ[kind](data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        return _one_by_one(data, kind, err)
    asks: list[Request] = found if isinstance(found, list) else [found]
    if not asks:
        return [], [("", fault("bad_request", "a message holds at least one request"))]
    if len(asks) > MOST_AT_ONCE:
        return [], [("", _too_many())]
    return asks, []


def _too_many() -> Fault:
    return fault("too_large", f"a message holds at most {MOST_AT_ONCE} requests")


def _one_by_one(data: bytes | str, kind: str, err: Exception) -> tuple[list[Request], list[tuple[str, Fault]]]:
    """Some request in a message is bad: find out which."""
    asks: list[Request] = []
    refusals: list[tuple[str, Fault]] = []
    try:
        parts = _READ_RAW[kind](data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [], [(_id_of(data, kind), fault("bad_request", str(err)[:300]))]
    if len(parts) > MOST_AT_ONCE:
        return [], [("", _too_many())]
    for part in parts:
        try:
            asks.append(_READ_ONE[kind](part))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
            refusals.append((_id_of(bytes(part), kind), fault("bad_request", str(wrong)[:300])))
    return asks, refusals


def _id_of(data: bytes | str, kind: str) -> str:
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _READ_ANY[kind](data)
        if isinstance(value, dict) and isinstance(value.get("id"), str):
            return str(value["id"])[:128]
    return ""


class Speaker:
    """Sends answers, those of one turn of the loop together."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._outbox: dict[str, list[Response]] = {JSON: [], MSGPACK: []}
        self._news = asyncio.Event()
        self._closed = False
        self._task = asyncio.create_task(self._speak())

    @property
    def waiting(self) -> int:
        return sum(map(len, self._outbox.values()))

    def add(self, kind: str, name: str, result: Result) -> None:
        if self._closed:
            return  # the client asks again, with the same id, when it is back
        self._outbox[kind].append(answered(name, result))
        self._news.set()

    async def _speak(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            for kind, outbox in self._outbox.items():
                if not outbox:
                    continue
                answers = outbox[:]
                outbox.clear()
                said: Any = answers[0] if len(answers) == 1 else answers
                if kind == JSON:
                    await self._send({"type": "websocket.send", "text": encode_json(said).decode()})
                else:
                    await self._send({"type": "websocket.send", "bytes": encode_msgpack(said)})

    async def close(self) -> None:
        self._closed = True
        self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._task

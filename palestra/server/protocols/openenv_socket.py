"""OpenEnv's socket: one environment, messages in, a reply to each in their order. With the socket its session ends.

OpenEnv's client has no ids: once its patience is over it takes the next reply, whatever it answers, for that of its
next message. So where a message comes before the one before it was answered, that answer is not sent any more: nobody
waits for it. A message with a `request_id` is always answered, and the answer has the same.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from secrets import token_hex
from typing import Any

from palestra.remote.protocol import encode_json
from palestra.server.dispatcher import Desk
from palestra.server.protocols import toolbox
from palestra.server.protocols.openenv_wire import action_of, error_of, reset_of, result_of
from palestra.server.protocols.protocol_session import Seat, read_json
from palestra.server.request import Receive, Refused, Send

MOST_WAITING = 8  # messages of one client that were not answered; then none is read


class Talk:
    """One socket."""

    def __init__(self, desk: Desk, env: str, owner: str, send: Send) -> None:
        self._desk = desk
        self._env = env
        self._seat = Seat(desk, owner)
        self._episode: str | None = None
        self._send = send
        self._queue: asyncio.Queue[str | bytes] = asyncio.Queue(MOST_WAITING)

    async def hear(self, receive: Receive) -> None:
        """Until the client hangs up."""
        while True:
            message = await receive()
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            await self._queue.put(message["bytes"] if text is None else text)

    async def answer(self) -> None:
        """Until the client says that it has done."""
        while True:
            reply, name = await self._reply(await self._queue.get())
            if reply is None:
                return
            if name is not None:
                reply["request_id"] = name
            elif not self._queue.empty():
                continue  # its client has given it up
            self._desk.stats.requests["openenv", reply["data"].get("fault", "ok")] += 1
            await self._send({"type": "websocket.send", "text": encode_json(reply).decode()})

    def close(self) -> None:
        self._seat.close()

    async def _reply(self, text: str | bytes) -> tuple[dict[str, Any] | None, str | None]:
        """What to say to a message (None: goodbye), and the id it asks for."""
        try:
            message = read_json(text, Any)
        except Refused as err:
            return _wrong("INVALID_JSON", err.fault.message), None
        if not isinstance(message, dict):
            return _wrong("VALIDATION_ERROR", "a message is an object with a type"), None
        kind, data = message.get("type"), message.get("data", {})
        if not isinstance(data, dict):
            return _wrong("VALIDATION_ERROR", "data is an object"), None
        name = message.get("request_id", data.get("request_id"))
        if name is not None and not (isinstance(name, str) and len(name) <= 255):
            return _wrong("VALIDATION_ERROR", "request_id is a string of at most 255 characters"), None
        try:
            return await self._done(kind, data, name or ""), name
        except Refused as err:
            return error_of(err.fault, making=not self._seat.session), name

    async def _done(self, kind: object, data: dict[str, Any], name: str) -> dict[str, Any] | None:
        seat = self._seat
        if kind == "reset":
            asked = reset_of(data)
            with seat.held():
                await seat.sit(self._env)
                played = await seat.reset(asked.seed, asked.options, name=name)
            self._episode = asked.episode_id or token_hex(8)
            return {"type": "observation", "data": result_of(played, self._episode)}
        if kind == "step":
            action = action_of(data)
            await self._check_there()
            return {"type": "observation", "data": result_of(await seat.step(action, name=name), self._episode or "")}
        if kind == "state":
            return {"type": "state", "data": self._state()}
        if kind == "mcp":
            return {"type": "mcp", "data": await self._rpc(data)}
        if kind == "close":
            return None
        return _wrong("UNKNOWN_TYPE", f"there is no message of type {str(kind)[:60]!r}")

    async def _check_there(self) -> None:
        """A session that was lost is told as lost, and the next reset begins another."""
        if self._seat.session and not self._seat.open:
            await self._seat.sit(self._env)  # raises

    def _state(self) -> dict[str, Any]:
        seat = self._seat
        if seat.first is None or seat.last is None:
            return {"episode_id": None, "step_count": 0}
        return {
            "episode_id": self._episode,
            "step_count": seat.steps,
            "env": self._env,
            "seed": seat.first.info.get("seed"),
            "total_reward": seat.total,
            "done": seat.last.done,
        }

    async def _rpc(self, asked: dict[str, Any]) -> dict[str, Any]:
        name, method, params = asked.get("id"), asked.get("method"), asked.get("params") or {}
        try:
            if method == "tools/list":
                return toolbox.rpc_result(name, {"tools": toolbox.TOOLS})
            if method != "tools/call" or not isinstance(params, dict):
                raise toolbox.BadCall(toolbox.NO_METHOD, f"there is no method {str(method)[:60]!r}")
            result = await toolbox.call(self._seat, self._env, params.get("name"), params.get("arguments"), "")
            return toolbox.rpc_result(name, result)
        except toolbox.BadCall as err:
            return toolbox.rpc_error(name, *err.args)


async def converse(desk: Desk, env: str, owner: str, receive: Receive, send: Send) -> None:
    """One socket, from its beginning to its end."""
    await receive()
    await send({"type": "websocket.accept"})
    talk = Talk(desk, env, owner, send)
    tasks = [asyncio.create_task(talk.hear(receive)), asyncio.create_task(talk.answer())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        talk.close()
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):  # a reply to someone who has left
                await task
        with suppress(Exception):  # the client may have closed it
            await send({"type": "websocket.close", "code": 1000})


def _wrong(code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, "fault": "bad_request"}}

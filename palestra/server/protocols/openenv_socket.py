"""Serve OpenEnv's protocol over a WebSocket, with one environment per connection.

Replies are sent in the order of the messages. OpenEnv's client sends no request ids, so after a timeout it would
mistake a late reply for the reply to its next message. Therefore, a reply is dropped if the client has already sent
another message. A message with a `request_id` always receives a reply, which contains the same id.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from secrets import token_hex
from typing import Any

from palestra.remote.protocol import encode_json
from palestra.server.dispatcher import Dispatcher
from palestra.server.protocols import env_tools
from palestra.server.protocols.openenv_messages import (
    error_message,
    parse_action,
    parse_reset,
    state_response,
    step_response,
)
from palestra.server.protocols.openenv_tools import is_tool_action, tool_response, with_data
from palestra.server.protocols.protocol_session import ProtocolSession, decode_json
from palestra.server.request import Receive, RequestError, Send

MAX_UNANSWERED = 8  # maximum number of unanswered messages per connection; no further messages are read


class OpenEnvConnection:
    """WebSocket connection to an OpenEnv client."""

    def __init__(self, dispatcher: Dispatcher, env: str, owner: str, send: Send) -> None:
        self._dispatcher = dispatcher
        self._env = env
        self._session = ProtocolSession(dispatcher, owner)
        self._episode_id: str | None = None
        self._send = send
        self._queue: asyncio.Queue[str | bytes] = asyncio.Queue(MAX_UNANSWERED)

    async def receive_messages(self, receive: Receive) -> None:
        """Add received messages to the queue until the client disconnects."""
        while True:
            message = await receive()
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            await self._queue.put(message["bytes"] if text is None else text)

    async def send_replies(self) -> None:
        """Reply to queued messages until the client sends `close`."""
        while True:
            reply, request_id = await self._reply(await self._queue.get())
            if reply is None:
                return
            if request_id is not None:
                reply["request_id"] = request_id
            elif not self._queue.empty():
                continue  # the client is no longer waiting for this reply
            self._dispatcher.stats.requests["openenv", reply["data"].get("fault", "ok")] += 1
            await self._send({"type": "websocket.send", "text": encode_json(reply).decode()})

    def close(self) -> None:
        self._session.close()

    async def _reply(self, text: str | bytes) -> tuple[dict[str, Any] | None, str | None]:
        """Return the reply to a message and its request id. If the reply is None, the connection must be closed."""
        try:
            message = decode_json(text, Any)
        except RequestError as err:
            return _invalid("INVALID_JSON", err.fault.message), None
        if not isinstance(message, dict):
            return _invalid("VALIDATION_ERROR", "a message must be an object with a type"), None
        kind, data = message.get("type"), message.get("data", {})
        if not isinstance(data, dict):
            return _invalid("VALIDATION_ERROR", "data must be an object"), None
        request_id = message.get("request_id", data.get("request_id"))
        if request_id is not None and not (isinstance(request_id, str) and len(request_id) <= 255):
            return _invalid("VALIDATION_ERROR", "request_id must be a string of at most 255 characters"), None
        try:
            return await self._handle(kind, data, request_id or ""), request_id
        except RequestError as err:
            return error_message(err.fault, creating=not self._session.session), request_id

    async def _handle(self, kind: object, data: dict[str, Any], request_id: str) -> dict[str, Any] | None:
        session = self._session
        if kind == "reset":
            fields = parse_reset(data)
            with session.exclusive():
                await session.ensure_open(self._env)
                result = await session.reset(fields.seed, fields.options, request_id=request_id)
            self._episode_id = fields.episode_id or token_hex(8)
            return {"type": "observation", "data": step_response(result, self._episode_id)}
        if kind == "step" and is_tool_action(data):
            response = await tool_response(session, self._env, data, request_id)
            return {"type": "observation", "data": response}
        if kind == "step":
            action = parse_action(data)
            if session.session and not session.is_open:
                await session.ensure_open(self._env)  # raises an error with the reason why the session ended
            result = await session.step(action, request_id=request_id)
            return {"type": "observation", "data": step_response(result, self._episode_id or "")}
        if kind == "state":
            return {"type": "state", "data": state_response(session, self._episode_id)}
        if kind == "mcp":
            return {"type": "mcp", "data": await self._rpc(data)}
        if kind == "close":
            return None
        return _invalid("UNKNOWN_TYPE", f"unknown message type {str(kind)[:60]!r}")

    async def _rpc(self, message: dict[str, Any]) -> dict[str, Any]:
        request_id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        try:
            if method == "tools/list":
                return env_tools.rpc_result(request_id, {"tools": env_tools.TOOLS})
            if method != "tools/call" or not isinstance(params, dict):
                raise env_tools.RpcError(env_tools.METHOD_NOT_FOUND, f"unknown method {str(method)[:60]!r}")
            name, arguments = params.get("name"), params.get("arguments")
            result = await env_tools.call_tool(self._session, self._env, name, arguments, "")
            return env_tools.rpc_result(request_id, with_data(result))
        except env_tools.RpcError as err:
            return env_tools.rpc_error(request_id, *err.args)


async def serve_openenv_websocket(dispatcher: Dispatcher, env: str, owner: str, receive: Receive, send: Send) -> None:
    """Accept a connection and serve it until either side closes it."""
    await receive()
    await send({"type": "websocket.accept"})
    connection = OpenEnvConnection(dispatcher, env, owner, send)
    tasks = [
        asyncio.create_task(connection.receive_messages(receive)),
        asyncio.create_task(connection.send_replies()),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        connection.close()
        for task in tasks:
            task.cancel()
            # For example, the client disconnected before its reply was sent.
            with suppress(asyncio.CancelledError, Exception):
                await task
        with suppress(Exception):  # the client may already have closed the connection
            await send({"type": "websocket.close", "code": 1000})


def _invalid(code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code, "fault": "bad_request"}}

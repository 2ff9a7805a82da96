"""An environment as four tools - reset, step, render, close - for the protocols that know tools: MCP, and OpenEnv's."""

from __future__ import annotations

from typing import Any

from palestra.remote.protocol import Fault
from palestra.server.protocols.protocol_session import Played, Seat, read_json, told
from palestra.server.request import Refused

LATEST = "2025-11-25"
VERSIONS = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", LATEST})
PARSE, INVALID, NO_METHOD, BAD_PARAMS = -32700, -32600, -32601, -32602
_PICTURES = (("iVBOR", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp"))

TOOLS: list[dict[str, Any]] = [
    {
        "name": "reset",
        "description": "Begin an episode: the task, its rules, and the format of actions. "
        "The same seed gives the same episode.",
        "inputSchema": {
            "type": "object",
            "properties": {"seed": {"type": ["integer", "null"], "minimum": 0, "default": None}},
            "additionalProperties": False,
        },
    },
    {
        "name": "step",
        "description": "Take one action in the episode that `reset` began, written as its rules say.",
        "inputSchema": {
            "type": "object",
            "properties": {"action": {"type": "string"}},
            "required": ["action"],
            "additionalProperties": False,
        },
    },
    {
        "name": "render",
        "description": "The state as people look at it, which may show more than a player sees.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    },
    {
        "name": "close",
        "description": "Give the environment back; `reset` gets another one.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    },
]
_TAKES = {tool["name"]: set(tool["inputSchema"]["properties"]) for tool in TOOLS}


class BadCall(Exception):
    """A call that no tool takes; args: the JSON-RPC code and what is wrong."""


async def call(seat: Seat, env: str, name: object, arguments: object, request: str) -> dict[str, Any]:
    """What a tool answers. `request` is the id of the request: the same one twice is carried out once."""
    if not isinstance(name, str) or name not in _TAKES:
        raise BadCall(BAD_PARAMS, f"there is no tool {name!r}; there are {', '.join(_TAKES)}")
    given = {} if arguments is None else arguments
    if not isinstance(given, dict) or not given.keys() <= _TAKES[name]:
        raise BadCall(BAD_PARAMS, f"{name} takes {', '.join(_TAKES[name]) or 'nothing'}")
    try:
        if name == "reset":
            return await _reset(seat, env, given.get("seed"), request)
        if name == "step":
            return await _step(seat, given.get("action"), request)
        if name == "render":
            return _answer(await seat.render() or "There is no such view of this environment.", {})
        was = seat.leave()
        return _answer("The environment is closed." if was else "There was none.", {"closed": was})
    except Refused as err:
        return failed(err.fault)


async def _reset(seat: Seat, env: str, seed: object, request: str) -> dict[str, Any]:
    if seed is not None and not is_seed(seed):
        raise BadCall(BAD_PARAMS, "seed is a whole number from 0 up, or left out")
    with seat.held():
        await seat.sit(env)
        played = await seat.reset(seed if isinstance(seed, int) else None, name=request)
    return _answer(played.observation, {"info": played.info})


async def _step(seat: Seat, action: object, request: str) -> dict[str, Any]:
    if not isinstance(action, str):
        raise BadCall(BAD_PARAMS, "action is a string")
    played = await seat.step(action, name=request)
    reward = played.reward or 0.0
    note = f"[reward {reward:g}]" if reward else ""
    if played.done:
        outcome = "solved" if played.info.get("success") else "not solved"
        note = f"[reward {reward:g}; the episode is over: {outcome}]"
    return _answer(played.observation, facts(played), note)


def facts(played: Played) -> dict[str, Any]:
    """A step without its observation."""
    return {
        "reward": played.reward,
        "terminated": played.terminated,
        "truncated": played.truncated,
        "info": played.info,
    }


def failed(found: Fault) -> dict[str, Any]:
    """An error of the desk's, in words a model reads and in facts a program reads."""
    body = _answer(found.message, {"code": found.code, **told(found)})
    return {**body, "isError": True}


def is_seed(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= (1 << 63) - 1


def _answer(observation: Any, known: dict[str, Any], note: str = "") -> dict[str, Any]:
    parts = [{"type": "text", "text": observation}] if isinstance(observation, str) else observation
    blocks = [_block(part) for part in parts]
    if note:
        blocks.append({"type": "text", "text": note})
    return {"content": blocks, "structuredContent": known, "isError": False}


def _block(part: Any) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    data: str = part["image"]  # in base64, as JSON has it
    kind = next((kind for start, kind in _PICTURES if data.startswith(start)), "application/octet-stream")
    return {"type": "image", "data": data, "mimeType": kind}


def rpc_error(name: Any, code: int, message: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
    """A JSON-RPC error."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": name, "error": error}


def rpc_result(name: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": name, "result": result}


def read_rpc(body: bytes) -> dict[str, Any]:
    """A JSON-RPC message; BadCall where it is none."""
    try:
        found = read_json(body, Any)
    except Refused as err:
        raise BadCall(PARSE, err.fault.message) from None
    if not isinstance(found, dict) or found.get("jsonrpc") != "2.0":
        raise BadCall(INVALID, "send one JSON-RPC 2.0 message, not a batch")
    return found

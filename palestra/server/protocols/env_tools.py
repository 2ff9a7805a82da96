"""MCP tools that control an environment (reset, step, render, close), shared by the MCP and OpenEnv protocols."""

from __future__ import annotations

from typing import Any

from palestra.remote.protocol import Fault
from palestra.server.protocols.protocol_session import ProtocolSession, decode_json, error_details
from palestra.server.request import RequestError

LATEST_VERSION = "2025-11-25"
VERSIONS = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", LATEST_VERSION})
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
_IMAGE_TYPES = (("iVBOR", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp"))

TOOLS: list[dict[str, Any]] = [
    {
        "name": "reset",
        "description": "Start an episode and return the task, its rules and the format of actions. "
        "The same seed starts the same episode.",
        "inputSchema": {
            "type": "object",
            "properties": {"seed": {"type": ["integer", "null"], "minimum": 0, "default": None}},
            "additionalProperties": False,
        },
    },
    {
        "name": "step",
        "description": "Take one action in the running episode, in the format that `reset` described.",
        "inputSchema": {
            "type": "object",
            "properties": {"action": {"type": "string"}},
            "required": ["action"],
            "additionalProperties": False,
        },
    },
    {
        "name": "render",
        "description": "Render the state for humans. The result may contain information that the player cannot see.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    },
    {
        "name": "close",
        "description": "Close the environment; `reset` opens a new one.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    },
]
_PARAMETERS = {tool["name"]: set(tool["inputSchema"]["properties"]) for tool in TOOLS}


class RpcError(Exception):
    """Raised for an invalid JSON-RPC call. `args` contains the error code and the message."""


async def call_tool(
    session: ProtocolSession, env: str, name: object, arguments: object, request_id: str
) -> dict[str, Any]:
    """Run a tool and return its MCP result. Calls with the same `request_id` are executed only once."""
    if not isinstance(name, str) or name not in _PARAMETERS:
        raise RpcError(INVALID_PARAMS, f"unknown tool {name!r}; available: {', '.join(_PARAMETERS)}")
    values = {} if arguments is None else arguments
    if not isinstance(values, dict) or not values.keys() <= _PARAMETERS[name]:
        raise RpcError(INVALID_PARAMS, f"{name} accepts {', '.join(_PARAMETERS[name]) or 'no arguments'}")
    try:
        if name == "reset":
            return await _reset(session, env, values.get("seed"), request_id)
        if name == "step":
            return await _step(session, values.get("action"), request_id)
        if name == "render":
            return _tool_result(await session.render() or "This environment has no text rendering.", {})
        was_open = session.release()
        return _tool_result(
            "The environment is closed." if was_open else "No environment was open.", {"closed": was_open}
        )
    except RequestError as err:
        return error_result(err.fault)


async def _reset(session: ProtocolSession, env: str, seed: object, request_id: str) -> dict[str, Any]:
    if seed is not None and not is_seed(seed):
        raise RpcError(INVALID_PARAMS, "seed must be a non-negative integer, or omitted")
    with session.exclusive():
        await session.ensure_open(env)
        result = await session.reset(seed if isinstance(seed, int) else None, request_id=request_id)
    return _tool_result(result.observation, {"info": result.info})


async def _step(session: ProtocolSession, action: object, request_id: str) -> dict[str, Any]:
    if not isinstance(action, str):
        raise RpcError(INVALID_PARAMS, "action must be a string")
    result = await session.step(action, request_id=request_id)
    reward = result.reward or 0.0
    note = f"[reward {reward:g}]" if reward else ""
    if result.done:
        outcome = "solved" if result.info.get("success") else "not solved"
        note = f"[reward {reward:g}; the episode is over: {outcome}]"
    structured = {
        "reward": result.reward,
        "terminated": result.terminated,
        "truncated": result.truncated,
        "info": result.info,
    }
    return _tool_result(result.observation, structured, note)


def error_result(error: Fault) -> dict[str, Any]:
    """Convert a dispatcher error to a tool result with text for the model and structured content."""
    return {**_tool_result(error.message, {"code": error.code, **error_details(error)}), "isError": True}


def is_seed(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= (1 << 63) - 1


def _tool_result(observation: Any, structured: dict[str, Any], note: str = "") -> dict[str, Any]:
    parts = [{"type": "text", "text": observation}] if isinstance(observation, str) else observation
    blocks = [_content_block(part) for part in parts]
    if note:
        blocks.append({"type": "text", "text": note})
    return {"content": blocks, "structuredContent": structured, "isError": False}


def _content_block(part: Any) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    data: str = part["image"]  # encoded as base64
    mime_type = next((kind for start, kind in _IMAGE_TYPES if data.startswith(start)), "application/octet-stream")
    return {"type": "image", "data": data, "mimeType": mime_type}


def rpc_error(request_id: Any, code: int, message: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a JSON-RPC error response."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def rpc_result(request_id: Any, result: Any) -> dict[str, Any]:
    """Return a JSON-RPC result response."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def decode_rpc(body: bytes) -> dict[str, Any]:
    """Decode a JSON-RPC message; raise RpcError if it is invalid."""
    try:
        message = decode_json(body, Any)
    except RequestError as err:
        raise RpcError(PARSE_ERROR, err.fault.message) from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, "expected one JSON-RPC 2.0 message; batches are not supported")
    return message

"""Actions `list_tools` and `call_tool`, which OpenEnv's MCPToolClient sends as steps."""

from __future__ import annotations

from typing import Any

from palestra.server.protocols import env_tools
from palestra.server.protocols.protocol_session import ProtocolSession

_TOOLS = [
    {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]}
    for tool in env_tools.TOOLS
]


def is_tool_action(data: dict[str, Any]) -> bool:
    """Return whether an action lists or calls tools instead of acting in the environment."""
    return data.get("type") in ("list_tools", "call_tool")


async def tool_response(session: ProtocolSession, env: str, data: dict[str, Any], request_id: str) -> dict[str, Any]:
    """Return the response to a step that lists or calls tools."""
    if data["type"] == "list_tools":
        return _response({"tools": _TOOLS})
    name = data.get("tool_name")
    try:
        result = await env_tools.call_tool(session, env, name, data.get("arguments"), request_id)
    except env_tools.RpcError as err:
        known = any(name == tool["name"] for tool in _TOOLS)
        return _failure(str(name), "invalid_args" if known else "tool_not_found", str(err.args[1]))
    result = with_data(result)
    if result["isError"]:
        return _failure(str(name), "execution_error", result["data"])
    values = result["structuredContent"]
    done = bool(values.get("terminated") or values.get("truncated"))
    observation = {"tool_name": name, "result": result}
    return _response(observation, reward=values.get("reward"), done=done)


def with_data(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a tool call with its text in `data`, which OpenEnv's MCPToolClient returns to its caller."""
    return {**result, "data": "\n".join(block["text"] for block in result["content"] if block["type"] == "text")}


def _failure(name: str, kind: str, message: str) -> dict[str, Any]:
    return _response({"tool_name": name, "result": None, "error": {"error_type": kind, "message": message}})


def _response(observation: dict[str, Any], *, reward: float | None = None, done: bool = False) -> dict[str, Any]:
    return {"observation": observation, "reward": reward, "done": done}

"""Instructions that describe the available tools to a model: arguments, call syntax and maximum number of calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from palestra.tools.base import Tool


def instructions(tools: Sequence[Tool], *, fences: bool = True, max_calls: int | None = None) -> str:
    """Return the text to append to a task's prompt, or "" if there are no tools."""
    if not tools:
        return ""
    parts = ["You may use tools before you answer." if len(tools) > 1 else "You may use a tool before you answer."]
    parts += [_description(tool) for tool in tools]
    parts.append(_call_forms(tools, fences=fences))
    budget = "" if max_calls is None else f" You have {max_calls} tool call{'s' if max_calls != 1 else ''} in total."
    parts.append(f"End your message with the call; the next message contains its result.{budget}")
    return "\n".join(parts)


def _description(tool: Tool) -> str:
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", ())
    arguments = ", ".join(
        f"{name}{'' if name in required else '?'}: {_kind(schema)}" for name, schema in properties.items()
    )
    lines = [f"- {tool.name}({arguments}): {' '.join(tool.description.split())}"]
    lines += [f"    {name}: {schema['description']}" for name, schema in properties.items() if "description" in schema]
    return "\n".join(lines)


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_kind(option) for option in schema["anyOf"])
    kind = schema.get("type", "any")
    return f"list of {_kind(schema['items'])}" if kind == "array" and "items" in schema else str(kind)


def _call_forms(tools: Sequence[Tool], *, fences: bool) -> str:
    """Describe the ways to call the tools: with a tool's tag, with its fenced block, and with the general syntax."""
    short = [f"<{tool.tag}>{tool.body}</{tool.tag}>" for tool in tools if tool.tag and tool.body]
    blocks = sorted({f"```{tool.fences[0]}" for tool in tools if tool.fences}) if fences else []
    forms = [" or ".join(short)] if short else []
    forms += [f"a fenced block ({', '.join(blocks)})"] if blocks else []
    forms.append(f"<tool_call>{json.dumps({'name': tools[0].name, 'arguments': _example(tools[0])})}</tool_call>")
    return f"To call {'one' if len(tools) > 1 else 'it'}, write {', or '.join(forms)}."


def _example(tool: Tool) -> dict[str, Any]:
    if tool.example is not None:
        return dict(tool.example)
    samples = {"string": "...", "integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    return {
        name: schema["enum"][0] if "enum" in schema else samples.get(schema.get("type", "string"), "...")
        for name, schema in properties.items()
        if name in tool.parameters.get("required", ())
    }

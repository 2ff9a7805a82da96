"""Tools: what an agent may call beside its task. `toolset` finds one by name; names are loaded when first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from palestra.errors import BadValue
from palestra.tools.base import BadCall, FunctionTool, Tool, ToolResult, Toolset, tool

__all__ = ["BadCall", "FunctionTool", "Tool", "ToolResult", "Toolset", "tool", "toolset"]

TOOLS: dict[str, str] = {  # name -> what makes it; "name:rest" passes the rest on
    "mcp": "palestra.tools.mcp:McpTools",
    "python": "palestra.tools.python:PythonTool",
    "search": "palestra.tools.search:SearchTool",
}


def toolset(item: str | Toolset | Callable[..., Any], *, corpus: Any = None) -> Toolset:
    """What `tools=[...]` holds as a Toolset: a name, a tool, or a plain typed function with a docstring.

    `corpus` is what "search" without more searches in; an environment may bring one along.
    """
    if isinstance(item, Toolset):
        return item
    if isinstance(item, str):
        name, colon, rest = item.partition(":")
        if name not in TOOLS:
            near = get_close_matches(name, TOOLS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadValue(f"no tool {name!r}.{hint} There are: {', '.join(TOOLS)}.")
        module, _, attribute = TOOLS[name].partition(":")
        made = getattr(importlib.import_module(module), attribute)
        if name == "search" and not rest and corpus is not None:
            rest, colon = corpus, ":"
        found: Toolset = made(rest) if colon else made()
        return found
    if isinstance(item, type) and issubclass(item, Toolset):
        return item()
    if callable(item):
        return FunctionTool(item)
    raise BadValue(f"a tool is a name, a Tool or a function, got {item!r}")

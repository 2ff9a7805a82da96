"""Look up tools by name: built-in tools, tools registered in Python, and entry points of installed packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palestra.errors import BadValue
from palestra.plugins import PluginRegistry
from palestra.tools.base import FunctionTool, Toolset

ToolFactory = Callable[..., Toolset]  # called without arguments for "name", and with "rest" for "name:rest"

TOOLS: PluginRegistry[ToolFactory] = PluginRegistry(
    "tool",
    group="tools",
    built_in={
        "browser": "palestra.tools.browser:BrowserTool",
        "mcp": "palestra.tools.mcp:McpTools",
        "python": "palestra.tools.python:PythonTool",
        "search": "palestra.tools.search:SearchTool",
    },
    add_with="register_tool()",
)
get_tool = TOOLS.get
tool_names = TOOLS.names


def register_tool(name: str, factory: ToolFactory, *, overwrite: bool = False) -> None:
    """Make a tool available as `tools=["name"]` and `--tools name`.

    `factory` is a Tool or Toolset class, or a function that returns one. `tools=["name:rest"]` calls `factory("rest")`.
    """
    if ":" in name:
        raise BadValue(f"a tool name must not contain a colon, got {name!r}")
    TOOLS.register(name, factory, overwrite=overwrite)


def make_toolset(item: str | Toolset | Callable[..., Any], *, corpus: Any = None) -> Toolset:
    """Convert an element of `tools=[...]` to a Toolset: a name, a tool, a tool class or a typed function.

    `corpus` is the environment's corpus or None; the tools "search" and "browser" without a source use this corpus.
    """
    if isinstance(item, Toolset):
        return item
    if isinstance(item, str):
        name, colon, rest = item.partition(":")
        factory = get_tool(name)
        if name in ("browser", "search") and not rest and corpus is not None:
            rest, colon = corpus, ":"
        tools = factory(rest) if colon else factory()
        if not isinstance(tools, Toolset):
            raise BadValue(f"the factory for tool {name!r} must return a Tool or Toolset, got {type(tools).__name__}")
        return tools
    if isinstance(item, type) and issubclass(item, Toolset):
        return item()
    if callable(item):
        return FunctionTool(item)
    raise BadValue(f"an element of `tools` must be a name, a Tool or a function, got {item!r}")

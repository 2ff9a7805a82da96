"""Look up tools by name: built-in tools, tools registered in Python, and entry points of installed packages."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from palestra.errors import BadValue
from palestra.tools.base import FunctionTool, Toolset

GROUP = "palestra.tools"  # entry-point group; an entry point is written as name = "package.module:factory"

ToolFactory = Callable[..., Toolset]  # called without arguments for "name", and with "rest" for "name:rest"

_BUILT_IN = {
    "mcp": "palestra.tools.mcp:McpTools",
    "python": "palestra.tools.python:PythonTool",
    "search": "palestra.tools.search:SearchTool",
}
_registered: dict[str, ToolFactory] = {}


def register_tool(name: str, factory: ToolFactory, *, overwrite: bool = False) -> None:
    """Make a tool available as `tools=["name"]` and `--tools name`.

    `factory` is a Tool or Toolset class, or a function that returns one. `tools=["name:rest"]` calls `factory("rest")`.
    """
    if not callable(factory):
        raise BadValue(f"the factory of tool {name!r} must be callable, got {type(factory).__name__}")
    if not name or ":" in name:
        raise BadValue(f"the name of a tool must not be empty or contain a colon, got {name!r}")
    if not overwrite and (name in _BUILT_IN or _registered.get(name, factory) is not factory):
        raise BadValue(f"a tool named {name!r} already exists; choose another name or pass overwrite=True")
    _registered[name] = factory


def get_tool(name: str) -> ToolFactory:
    """Return the factory registered as `name`; registrations in Python take precedence over the other tools."""
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        built_in: ToolFactory = getattr(import_module(module), attribute)
        return built_in
    for entry in _entry_points():
        if entry.name == name:
            factory: ToolFactory = entry.load()
            return factory
    names = tool_names()
    close = get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise BadValue(f"no tool named {name!r}.{hint} Available: {', '.join(names)}; add one with register_tool()")


def tool_names() -> list[str]:
    """Return the names of all tools, sorted."""
    return sorted({*_registered, *_BUILT_IN, *(entry.name for entry in _entry_points())})


def make_toolset(item: str | Toolset | Callable[..., Any], *, corpus: Any = None) -> Toolset:
    """Convert an element of `tools=[...]` to a Toolset: a name, a tool, a tool class or a typed function.

    `corpus` is the environment's corpus, if it has one; the name "search" without a source searches it.
    """
    if isinstance(item, Toolset):
        return item
    if isinstance(item, str):
        name, colon, rest = item.partition(":")
        factory = get_tool(name)
        if name == "search" and not rest and corpus is not None:
            rest, colon = corpus, ":"
        tools = factory(rest) if colon else factory()
        if not isinstance(tools, Toolset):
            raise BadValue(f"the factory of tool {name!r} must return a Tool or Toolset, got {type(tools).__name__}")
        return tools
    if isinstance(item, type) and issubclass(item, Toolset):
        return item()
    if callable(item):
        return FunctionTool(item)
    raise BadValue(f"an element of `tools` must be a name, a Tool or a function, got {item!r}")


def _entry_points() -> Any:
    from importlib.metadata import entry_points  # slow to import, and only needed for unknown names

    return entry_points(group=GROUP)

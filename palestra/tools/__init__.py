"""Tools that an agent can call while it works on its task."""

from __future__ import annotations

from palestra.tools.base import BadCall, FunctionTool, Tool, ToolResult, Toolset, tool
from palestra.tools.registry import get_tool, make_toolset, register_tool, tool_names

__all__ = [
    "BadCall",
    "FunctionTool",
    "Tool",
    "ToolResult",
    "Toolset",
    "get_tool",
    "make_toolset",
    "register_tool",
    "tool",
    "tool_names",
]

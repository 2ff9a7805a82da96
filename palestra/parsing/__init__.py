"""Find answers, actions and tool calls in an agent's text. All functions accept any string and take linear time."""

from __future__ import annotations

from palestra.parsing.actions import after_thinking, react_action
from palestra.parsing.boxes import TAIL, boxed, clip, last_boxed, last_tagged, read_int, read_ints
from palestra.parsing.calls import CallSpan, as_tool_call, first_calls, tool_calls, written_calls
from palestra.parsing.programs import fenced, last_code

__all__ = [
    "TAIL",
    "CallSpan",
    "after_thinking",
    "as_tool_call",
    "boxed",
    "clip",
    "fenced",
    "first_calls",
    "last_boxed",
    "last_code",
    "last_tagged",
    "react_action",
    "read_int",
    "read_ints",
    "tool_calls",
    "written_calls",
]

"""Find answers, actions and tool calls in an agent's text. All functions accept any string and take linear time."""

from __future__ import annotations

from palestra.parsing.actions import after_thinking, react_action, read_command
from palestra.parsing.boxes import TAIL, boxed, clip, last_boxed, last_tagged, read_answer
from palestra.parsing.calls import CallSpan, as_tool_call, first_calls, tool_calls, written_calls
from palestra.parsing.markup import plain
from palestra.parsing.numbers import read_int, read_ints, read_number_words
from palestra.parsing.programs import fenced, last_code, read_program

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
    "plain",
    "react_action",
    "read_answer",
    "read_command",
    "read_int",
    "read_ints",
    "read_number_words",
    "read_program",
    "tool_calls",
    "written_calls",
]

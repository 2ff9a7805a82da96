"""Reply styles (plain, ReAct, native tool calls): the instruction for the model and the parser for its replies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from palestra.errors import BadValue
from palestra.parsing import as_tool_call, react_action, tool_calls

REACT = (
    "Answer every message in two parts:\n"
    "Thought: your assessment of the situation and what to try next\n"
    "Action: the action itself and nothing else, in the format that the task requires"
)
ToolFormat = Literal["auto", "hermes", "qwen_coder", "llama", "mistral"]
_CALL = {
    "hermes": "To call one, write a JSON object with its name and arguments between tags:\n"
    '<tool_call>{"name": "...", "arguments": {...}}</tool_call>',
    "qwen_coder": "To call one, write its name and arguments between tags:\n"
    "<tool_call>\n<function=NAME>\n<parameter=ARGUMENT>\nvalue\n</parameter>\n</function>\n</tool_call>",
    "llama": "To call one, reply with nothing but a JSON object with its name and arguments:\n"
    '{"name": "...", "parameters": {...}}',
    "mistral": "To call one, write a JSON list of calls after a marker:\n"
    '[TOOL_CALLS][{"name": "...", "arguments": {...}}]',
}


@dataclass(slots=True, kw_only=True)  # not frozen, because frozen dataclasses are slow to create
class ParsedReply:
    """The action and the tool calls in a reply."""

    action: str  # text passed to the environment
    tool_calls: tuple[dict[str, Any], ...] = ()  # {"name", "arguments"}, and "id" if the server assigned one


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainStyle:
    """Send the observation and use the whole reply as the action."""

    takes_tools: ClassVar[bool] = False
    instruction: str = ""

    def read(self, text: str, native: Sequence[Mapping[str, Any]]) -> ParsedReply:
        """Parse a reply; `native` holds tool calls parsed by the server."""
        del native
        return ParsedReply(action=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReActStyle:
    """A thought followed by an action; if no action can be parsed, the whole reply is the action."""

    takes_tools: ClassVar[bool] = False
    instruction: str = REACT

    def read(self, text: str, native: Sequence[Mapping[str, Any]]) -> ParsedReply:
        del native
        action = react_action(text)
        return ParsedReply(action=text if action is None else action)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStyle:
    """Native tool calls; the action is the unchanged reply.

    With the format "auto", the chat template or the server describes the tools; otherwise the system prompt does.
    """

    takes_tools: ClassVar[bool] = True
    instruction: str = ""
    format: ToolFormat = "auto"

    def __post_init__(self) -> None:
        if self.format not in get_args(ToolFormat):
            raise BadValue(f"format must be one of {', '.join(get_args(ToolFormat))}; got {self.format!r}")

    def read(self, text: str, native: Sequence[Mapping[str, Any]]) -> ParsedReply:
        calls = [call for item in native if (call := _from_server(item)) is not None] or tool_calls(text)
        return ParsedReply(action=text, tool_calls=tuple(calls))


Style = PlainStyle | ReActStyle | ToolStyle
_STYLES: dict[str, type[Style]] = {"plain": PlainStyle, "react": ReActStyle, "tools": ToolStyle}


def as_style(style: str | Style) -> Style:
    if isinstance(style, Style):
        return style
    if style not in _STYLES:
        raise BadValue(f"style must be one of {', '.join(_STYLES)}; got {style!r}")
    return _STYLES[style]()


def as_schemas(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return tool schemas in OpenAI format; wrap a bare {"name", "description", "parameters"}."""
    schemas = []
    for tool in tools:
        function = tool.get("function", tool)
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise BadValue(f'a tool must be a JSON schema such as {{"name": ..., "parameters": ...}}, got {tool!r}')
        schemas.append({"type": "function", "function": dict(function)})
    return schemas


def tools_text(tools: Sequence[Mapping[str, Any]], form: ToolFormat = "auto") -> str:
    """Return a description of the tools and the call format; "auto" means the Hermes format."""
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return f"You may call these functions:\n{listed}\n{_CALL['hermes' if form == 'auto' else form]}"


def _from_server(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """Convert a tool call from an OpenAI-compatible server, whose arguments are a JSON string."""
    parsed = as_tool_call(dict(call))
    return {**parsed, "id": str(call["id"])} if parsed and call.get("id") else parsed

"""Find the answer in what an agent wrote. Total: any string gives a result or None, in linear time."""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from typing import Any

TAIL = 8_000  # characters within which braces are matched: enough for any answer, and a wall of braces stays cheap

_BOX = "\\boxed{"
_BRACES = re.compile(r"\\boxed\{|[{}]")
_INT = re.compile(r"[+-]?[0-9]{1,9}")
_SMALL = {str(number): number for number in range(100)}  # what moves are made of: found, not parsed
_LABEL = re.compile(
    r"^[ \t]*[*#_]{0,4}(thought|action|observation)(?:[ \t]?[0-9]{1,3})?[*_]{0,2}[ \t]*:[*_]{0,2}", re.I | re.M
)
_FENCE = re.compile(r"```[a-z]*\n(.*?)\n?```", re.S)
_JSON = json.JSONDecoder()
_BETWEEN = re.compile(r"[ \t\r\n;,]*")


def last_boxed(text: str) -> str | None:
    r"""The content of the last closed `\boxed{...}`, or None. Nested braces are matched over TAIL characters."""
    _, found, rest = text.rpartition(_BOX)
    if not found:
        return None
    content, closed, _ = rest.partition("}")
    if closed and "{" not in content:
        return content
    depth = 1
    for brace in _BRACES.finditer(rest, 0, TAIL):
        depth += -1 if brace[0] == "}" else 1
        if depth == 0:
            return rest[: brace.start()]
    return _last_closed(text[-TAIL:])


def _last_closed(text: str) -> str | None:
    """As `last_boxed`, where the last box never closes: match every brace once, left to right."""
    found: tuple[int, int] | None = None
    opened: list[tuple[bool, int]] = []
    for brace in _BRACES.finditer(text):
        if brace[0] != "}":
            opened.append((brace[0] != "{", brace.end()))
        elif opened:
            boxed, start = opened.pop()
            if boxed and (found is None or start > found[0]):
                found = (start, brace.start())
    return None if found is None else text[found[0] : found[1]]


def boxed(answer: object) -> str:
    r"""`answer` inside `\boxed{}`."""
    return f"\\boxed{{{answer}}}"


def read_int(text: str) -> int | None:
    """A whole number of at most nine ASCII digits, or None."""
    number = _SMALL.get(text)
    if number is not None:
        return number
    text = text.strip()
    return int(text) if _INT.fullmatch(text) else None


def read_ints(text: str, count: int) -> list[int] | None:
    """Exactly `count` whole numbers parted by blanks or commas, brackets around them allowed, or None."""
    fields = text.strip(" \t\n[]()").replace(",", " ").split()
    if len(fields) != count:
        return None
    numbers = [read_int(word) for word in fields]
    return None if None in numbers else numbers  # type: ignore[return-value]


def clip(text: str, limit: int = 40) -> str:
    """`text` short enough and clean enough to quote back in a message."""
    if len(text) > limit:
        text = text[:limit] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def after_thinking(text: str) -> str:
    """What follows the last `</think>`, or all of it."""
    return text.rpartition("</think>")[2].strip()


def react_action(text: str) -> str | None:
    """What stands behind the last `Action:` label, or None.

    Labels begin a line and may be numbered or in bold. What a model goes on to imagine after its own `Observation:`
    does not count, nor does a code fence around the whole action.
    """
    labels = list(_LABEL.finditer(after_thinking(text) if "</think>" in text else text))
    found: str | None = None
    for label, following in zip_longest(labels, labels[1:]):
        kind = label[1].lower()
        if kind == "observation" and found is not None:
            break
        if kind == "action":
            action = label.string[label.end() : None if following is None else following.start()].strip()
            fence = _FENCE.fullmatch(action)
            found = (fence[1].strip() if fence else action) or found
    return found


def tool_calls(text: str) -> list[dict[str, Any]]:
    """The native tool calls in a reply, each as {"name", "arguments"}; what cannot be read is left out.

    Three ways to write them: Hermes and Qwen's `<tool_call>{...}</tool_call>`, Mistral's `[TOOL_CALLS]` with a list or
    with `name[ARGS]{...}`, and Llama's bare JSON, where the whole reply is one object or several parted by `;`.
    """
    if "<tool_call>" in text:
        bodies = (piece.partition("</tool_call>")[0] for piece in text.split("<tool_call>")[1:])
        return [call for body in bodies for call in _calls_in(body)]
    if "[TOOL_CALLS]" in text:
        return [call for piece in text.split("[TOOL_CALLS]")[1:] for call in _calls_in(piece)]
    bare = after_thinking(text).removeprefix("<|python_tag|>").strip()
    return _calls_in(bare) if bare.startswith(("{", "[")) else []


def _calls_in(text: str) -> list[dict[str, Any]]:
    text = text.strip()
    name, marker, rest = text.partition("[ARGS]")
    if marker and not text.startswith(("{", "[")):
        arguments, _ = _read_json(rest.strip())
        return [{"name": name.strip(), "arguments": arguments}] if isinstance(arguments, dict) else []
    calls: list[dict[str, Any]] = []
    start = 0
    while start < len(text):
        value, end = _read_json(text, start)
        if end == start:
            break
        items = value if isinstance(value, list) else [value]
        calls += [call for item in items if (call := as_tool_call(item)) is not None]
        start = _BETWEEN.match(text, end).end()  # type: ignore[union-attr]  # it matches nothing, too
    return calls


def as_tool_call(value: Any) -> dict[str, Any] | None:
    """One call in any of the usual JSON forms as {"name", "arguments"}, or None."""
    if not isinstance(value, dict):
        return None
    function = value.get("function")
    value = function if isinstance(function, dict) else value
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments, _ = _read_json(arguments)
    if not isinstance(value.get("name"), str) or not isinstance(arguments, dict):
        return None
    return {"name": value["name"], "arguments": arguments}


def _read_json(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value that begins at `start`, and where it ends; None and `start` where there is none."""
    try:
        return _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start

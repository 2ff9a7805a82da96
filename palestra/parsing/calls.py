"""Find native tool calls in a reply, in the formats that models are trained on."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palestra.parsing.actions import after_thinking
from palestra.parsing.boxes import TAIL

_JSON = json.JSONDecoder(strict=False)  # models write unescaped line breaks in strings
_BETWEEN = re.compile(r"[ \t\r\n;,]*")


def tool_calls(text: str) -> list[dict[str, Any]]:
    """Return the native tool calls in a reply, each as {"name", "arguments"}; calls that cannot be parsed are skipped.

    The formats are `<tool_call>{...}</tool_call>` (Hermes, Qwen), `<function=name>` with `<parameter=name>` elements
    (Qwen-Coder) or with a JSON object (Llama), `[TOOL_CALLS]` with a list or with `name[ARGS]{...}` (Mistral), and a
    reply that is only JSON: one object, or several separated by `;` (Llama).
    """
    if "<tool_call>" in text:
        bodies = (piece.partition("</tool_call>")[0] for piece in text.split("<tool_call>")[1:])
        return [call for body in bodies for call in _calls_in(body)]
    if "<function=" in text:
        return _function_calls(after_thinking(text))
    if "[TOOL_CALLS]" in text:
        return [call for piece in text.split("[TOOL_CALLS]")[1:] for call in _calls_in(piece)]
    bare = after_thinking(text).removeprefix("<|python_tag|>").strip()
    return _calls_in(bare) if bare.startswith(("{", "[")) else []


def _function_calls(text: str) -> list[dict[str, Any]]:
    """Return the calls in `<function=name>` elements, whose arguments are elements (as strings) or a JSON object."""
    calls: list[dict[str, Any]] = []
    for piece in text.split("<function=")[1:]:
        name, _, rest = piece.partition(">")
        body, closed, _ = rest.partition("</function>")
        arguments: Any = {}
        if "<parameter=" in body:
            for part in body.split("<parameter=")[1:]:
                key, _, value = part.partition(">")
                arguments[key.strip()] = value.partition("</parameter>")[0].removeprefix("\n").removesuffix("\n")
        elif body.strip():
            arguments, _ = _read_json(body.strip())
        if closed and isinstance(arguments, dict):
            calls.append({"name": name.strip(), "arguments": arguments})
    return calls


def _calls_in(text: str) -> list[dict[str, Any]]:
    text = text.strip()
    if text.startswith("<function="):
        return _function_calls(text)
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
        start = _BETWEEN.match(text, end).end()  # type: ignore[union-attr]  # _BETWEEN also matches the empty string
    return calls


def as_tool_call(value: Any) -> dict[str, Any] | None:
    """Convert a call in any common JSON format to {"name", "arguments"}; return None if it is not a call."""
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
    """Return the JSON value at `start` and the position after it, or None and `start` if there is no JSON value."""
    try:
        return _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpan:
    """The first complete call in a reply, or several calls if the format allows more than one."""

    calls: tuple[dict[str, Any], ...]  # each call is {"name", "arguments"}, or {"error"} with a message for the model
    end: int  # position after the calls; the rest of the text is ignored
    form: str  # "tag", "fence", "tool_call", "mistral", "json", "function" or "python_tag"


def first_calls(
    text: str,
    *,
    names: Collection[str],
    tags: Mapping[str, tuple[str, str]],
    fences: Mapping[str, tuple[str, str]],
    unclosed: bool = False,
) -> CallSpan | None:
    """Return the first complete tool call in a reply, in any format that models are trained on, or None.

    In formats that allow several calls, the calls that directly follow the first one are returned as well.
    `names` are the tool names. `tags` and `fences` map a tag such as `<python>`, or the language of a fenced
    block, to the tool that it calls and to the argument that receives the enclosed text. Calls inside `<think>` are
    ignored, unless `</think>` is missing. A call without its closing tag is an error. With `unclosed`, such a call
    extends to the end of the reply instead, for models whose generation stops at the closing tag.
    """
    start = text.rfind("</think>") + 1
    bare = text[start and start + 7 :].lstrip()
    if bare.startswith(("{", "[", "<|python_tag|>")):
        span = _bare_calls(text, len(text) - len(bare), names, fences)
        if span is not None:
            return span
    openers = re.compile(
        "|".join(
            [
                *(f"<{re.escape(tag)}>" for tag in ("tool_call", *tags)),
                *(f"<function={re.escape(name)}>" for name in names),
                r"```[ \t]*\n?[A-Za-z_]+[ \t]*\n",
                r"\[TOOL_CALLS\]",
            ]
        )
    )
    without_end: set[str] = set()  # closing delimiters that do not occur in the rest of the text
    unfinished: CallSpan | None = None
    for opener in openers.finditer(text, start):
        mark, body = opener[0], opener.end()
        if mark == "[TOOL_CALLS]":
            return _mistral_calls(text, body)
        if mark.startswith("<function="):
            end = -1 if "</function>" in without_end else text.find("</function>", body)
            if end >= 0:
                end += len("</function>")
                calls = _function_calls(text[opener.start() : end]) or [{"error": _SHAPE}]
                return CallSpan(calls=tuple(calls), end=end, form="function")
            without_end.add("</function>")
            continue
        form, closer = ("fence", "```") if mark.startswith("```") else ("tag", f"</{mark[1:]}")
        called = fences.get(mark.strip("` \t\n").lower()) if form == "fence" else tags.get(mark[1:-1])
        language = mark.strip("` \t\n").lower() if form == "fence" else ""
        if form == "fence" and called is None and language not in ("json", "tool_call"):
            continue
        end = -1 if closer in without_end else text.find(closer, body)
        if end < 0:
            without_end.add(closer)
            if form == "fence":
                if unclosed and called is not None:
                    return _one(called, text[body:], len(text), form)
            elif unclosed and called is not None:
                return _one(called, text[body:], len(text), form)
            elif unfinished is None:
                error = f"a call that starts with {mark} must end with {closer}; no tool was called"
                unfinished = CallSpan(calls=({"error": error},), end=len(text), form="tag" if called else "tool_call")
            continue
        if called is not None:
            return _one(called, text[body:end], end + len(closer), form)
        if form == "fence":
            calls, _ = _json_calls(text[body:end].strip())
            if calls and all(call.get("name") in names for call in calls):
                return CallSpan(calls=tuple(calls), end=end + 3, form="json")
            continue
        return _tagged_calls(text, body, end)
    return unfinished


def written_calls(calls: Sequence[Mapping[str, Any]]) -> str:
    """Format calls as text that `first_calls` can parse."""
    return "\n".join(f"<tool_call>{json.dumps(dict(call), ensure_ascii=False)}</tool_call>" for call in calls)


def _one(called: tuple[str, str], body: str, end: int, form: str) -> CallSpan:
    name, argument = called
    return CallSpan(
        calls=({"name": name, "arguments": {argument: body.strip("\n") if "\n" in body else body.strip()}},),
        end=end,
        form=form,
    )


def _tagged_calls(text: str, body: int, end: int) -> CallSpan:
    """Return the calls in the `<tool_call>` element at `body` and in the elements that directly follow."""
    calls: list[dict[str, Any]] = []
    opener, closer = "<tool_call>", "</tool_call>"
    while True:
        parsed, error = _json_calls(text[body:end].strip())
        calls += parsed or [{"error": error}]
        stop = end + len(closer)
        following = _BETWEEN.match(text, stop)
        body = following.end() + len(opener) if following else stop  # _BETWEEN also matches the empty string
        if not text.startswith(opener, body - len(opener)):
            break
        end = text.find(closer, body)
        if end < 0:
            break
    return CallSpan(calls=tuple(calls), end=stop, form="tool_call")


def _mistral_calls(text: str, body: int) -> CallSpan:
    """Return the calls after `[TOOL_CALLS]`: a list, or `name[ARGS]{...}`, possibly repeated."""
    calls: list[dict[str, Any]] = []
    while True:
        name, marker, _ = text[body : body + 200].partition("[ARGS]")
        start = body + len(name) + len(marker) if marker and not name.lstrip().startswith(("{", "[")) else body
        start += len(text[start : start + TAIL]) - len(text[start : start + TAIL].lstrip())
        value, end = _read_json(text, start)
        if end == start:
            error = f"the text after [TOOL_CALLS] is not JSON: {_why_not_json(text[start:])}"
            return CallSpan(calls=(*calls, {"error": error}), end=len(text), form="mistral")
        if start != body and marker:
            calls.append({"name": name.strip(), "arguments": value} if isinstance(value, dict) else {"error": _SHAPE})
        else:
            calls += [
                as_tool_call(item) or {"error": _SHAPE} for item in (value if isinstance(value, list) else [value])
            ]
        if not text.startswith("[TOOL_CALLS]", end):
            return CallSpan(calls=tuple(calls) or ({"error": _SHAPE},), end=end, form="mistral")
        body = end + len("[TOOL_CALLS]")


def _bare_calls(
    text: str, start: int, names: Collection[str], fences: Mapping[str, tuple[str, str]]
) -> CallSpan | None:
    """Return the calls in a reply that contains nothing else (Llama). JSON without a tool's name is not a call."""
    marker = "<|python_tag|>"
    tagged = text.startswith(marker, start)
    start += len(marker) if tagged else 0
    calls: list[dict[str, Any]] = []
    end = start
    while True:
        value, stop = _read_json(text, _BETWEEN.match(text, end).end())  # type: ignore[union-attr]  # _BETWEEN also matches the empty string
        items = [as_tool_call(item) for item in (value if isinstance(value, list) else [value])]
        valid = [item for item in items if item is not None and item["name"] in names]
        if not valid or len(valid) < len(items):
            break
        calls += valid
        end = stop
    if calls:
        return CallSpan(calls=tuple(calls), end=end, form="json")
    if tagged and "python" in fences:
        return _one(fences["python"], text[start:], len(text), "python_tag")
    return None


_SHAPE = 'a call must be an object with "name" and "arguments", and "arguments" must be an object'


def _json_calls(text: str) -> tuple[list[dict[str, Any]], str]:
    """Return the calls in a JSON text and "", or an empty list and an error message."""
    if text.startswith("<function="):
        calls_in_tags = _function_calls(text)
        return calls_in_tags, "" if calls_in_tags else _SHAPE
    try:
        value = _JSON.decode(text)
    except (ValueError, RecursionError):
        return [], f"the text between the tags is not JSON: {_why_not_json(text)}"
    calls = [as_tool_call(item) for item in (value if isinstance(value, list) else [value])]
    good = [call for call in calls if call is not None]
    return (good, "") if good and len(good) == len(calls) else ([], _SHAPE)


def _why_not_json(text: str) -> str:
    try:
        _JSON.decode(text.strip())
    except json.JSONDecodeError as err:
        return f"{err.msg} at character {err.pos}"
    except RecursionError:
        return "it is nested too deeply"
    return "text follows the JSON value"

"""Find answers, actions and tool calls in an agent's text. All functions accept any string and take linear time."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

TAIL = 8_000  # braces are matched within this many characters, to bound the time

_BOX = "\\boxed{"
_BRACES = re.compile(r"\\boxed\{|[{}]")
_INT = re.compile(r"[+-]?[0-9]{1,9}")
_SMALL = {str(number): number for number in range(100)}  # a lookup is faster than int()
_LABEL = re.compile(
    r"^[ \t]*[*#_]{0,4}(thought|action|observation)(?:[ \t]?[0-9]{1,3})?[*_]{0,2}[ \t]*:[*_]{0,2}", re.I | re.M
)
_FENCE_LINE = re.compile(r"^[ \t]{0,3}```[ \t]*([^\n`]*)$", re.M)
_FENCE = re.compile(r"```[a-z]*\n(.*?)\n?```", re.S)
_JSON = json.JSONDecoder(strict=False)  # models write unescaped line breaks in strings
_BETWEEN = re.compile(r"[ \t\r\n;,]*")


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last closed `\boxed{...}`, or None. Braces are matched within TAIL characters."""
    _, box, rest = text.rpartition(_BOX)
    if not box:
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
    """Do the same as `last_boxed` for a text whose last box is not closed, by matching all braces from the left."""
    span: tuple[int, int] | None = None
    opened: list[tuple[bool, int]] = []
    for brace in _BRACES.finditer(text):
        if brace[0] != "}":
            opened.append((brace[0] != "{", brace.end()))
        elif opened:
            boxed, start = opened.pop()
            if boxed and (span is None or start > span[0]):
                span = (start, brace.start())
    return None if span is None else text[span[0] : span[1]]


def boxed(answer: object) -> str:
    r"""Return `answer` inside `\boxed{}`."""
    return f"\\boxed{{{answer}}}"


def last_code(text: str, languages: Collection[str] = ("", "py", "python", "python3")) -> str | None:
    """Return the content of the last closed fenced block in one of `languages` ("" for no language), or None."""
    code: str | None = None
    opened: tuple[str, int] | None = None
    for fence in _FENCE_LINE.finditer(text):
        label = fence[1].strip().lower()
        if opened is None or label:  # a fence with a language always opens a block
            opened = (label, fence.end())
            continue
        if opened[0] in languages:
            code = text[opened[1] : fence.start()].strip("\n")
        opened = None
    return code


def fenced(code: str, language: str = "python") -> str:
    """Return `code` as a fenced block."""
    return f"```{language}\n{code}\n```"


def last_tagged(text: str, tag: str = "answer") -> str | None:
    """Return the content of the last closed `<tag>...</tag>`, or None."""
    before, closed, _ = text.rpartition(f"</{tag}>")
    if not closed:
        return None
    _, opened, content = before.rpartition(f"<{tag}>")
    return content.strip() if opened else None


def read_int(text: str) -> int | None:
    """Parse an integer of at most nine ASCII digits; return None for other text."""
    number = _SMALL.get(text)
    if number is not None:
        return number
    text = text.strip()
    return int(text) if _INT.fullmatch(text) else None


def read_ints(text: str, count: int) -> list[int] | None:
    """Parse exactly `count` integers separated by spaces or commas, optionally in brackets; None for other text."""
    fields = text.strip(" \t\n[]()").replace(",", " ").split()
    if len(fields) != count:
        return None
    numbers = [read_int(word) for word in fields]
    return None if None in numbers else numbers  # type: ignore[return-value]


def clip(text: str, limit: int = 40) -> str:
    """Return `text` truncated and without control characters, for quoting in a message."""
    if len(text) > limit:
        text = text[:limit] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def after_thinking(text: str) -> str:
    """Return the text after the last `</think>`, or the whole text if there is none."""
    return text.rpartition("</think>")[2].strip()


def react_action(text: str) -> str | None:
    """Return the text after the last `Action:` label, or None.

    The label must be at the start of a line and may be numbered or bold. If the model continues with an invented
    `Observation:`, that text is ignored. A code fence around the whole action is removed.
    """
    labels = list(_LABEL.finditer(after_thinking(text) if "</think>" in text else text))
    result: str | None = None
    for label, following in zip_longest(labels, labels[1:]):
        kind = label[1].lower()
        if kind == "observation" and result is not None:
            break
        if kind == "action":
            action = label.string[label.end() : None if following is None else following.start()].strip()
            fence = _FENCE.fullmatch(action)
            result = (fence[1].strip() if fence else action) or result
    return result


def tool_calls(text: str) -> list[dict[str, Any]]:
    """Return the native tool calls in a reply, each as {"name", "arguments"}; calls that cannot be parsed are skipped.

    Three formats are supported: `<tool_call>{...}</tool_call>` (Hermes, Qwen), `[TOOL_CALLS]` with a list or with
    `name[ARGS]{...}` (Mistral), and a reply that is only JSON: one object, or several separated by `;` (Llama).
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

    calls: tuple[dict[str, Any], ...]  # each {"name", "arguments"}, or {"error"} with a message for the model
    end: int  # position after the calls; the rest of the text is ignored
    form: str  # "tag", "fence", "tool_call", "mistral", "json", or "python_tag"


def first_calls(
    text: str,
    *,
    names: Collection[str],
    tags: Mapping[str, tuple[str, str]],
    fences: Mapping[str, tuple[str, str]],
    unclosed: bool = False,
) -> CallSpan | None:
    """Return the first complete tool call in a reply, in any format that models are trained on, or None.

    `names` are the names of the tools. `tags` and `fences` map a tag such as `<python>`, or the language of a fenced
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
    """Return the calls of a reply that consists only of calls (Llama). JSON without a tool's name is not a call."""
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

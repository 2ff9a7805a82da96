"""Find the answer in what an agent wrote. Total: any string gives a result or None, in linear time."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
_FENCE_LINE = re.compile(r"^[ \t]{0,3}```[ \t]*([^\n`]*)$", re.M)
_FENCE = re.compile(r"```[a-z]*\n(.*?)\n?```", re.S)
_JSON = json.JSONDecoder(strict=False)  # models write line breaks into strings as they are
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


def last_code(text: str, languages: Collection[str] = ("", "py", "python", "python3")) -> str | None:
    """What the last closed fenced block in one of `languages` holds ("": a bare fence), or None."""
    found: str | None = None
    opened: tuple[str, int] | None = None
    for fence in _FENCE_LINE.finditer(text):
        label = fence[1].strip().lower()
        if opened is None or label:  # a fence with a label always opens one
            opened = (label, fence.end())
            continue
        if opened[0] in languages:
            found = text[opened[1] : fence.start()].strip("\n")
        opened = None
    return found


def fenced(code: str, language: str = "python") -> str:
    """`code` in a fenced block."""
    return f"```{language}\n{code}\n```"


def last_tagged(text: str, tag: str = "answer") -> str | None:
    """The content of the last closed `<tag>...</tag>`, or None."""
    before, closed, _ = text.rpartition(f"</{tag}>")
    if not closed:
        return None
    _, opened, content = before.rpartition(f"<{tag}>")
    return content.strip() if opened else None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpan:
    """The first complete call in a reply, or several at once where the form allows it."""

    calls: tuple[dict[str, Any], ...]  # {"name", "arguments"} each, or {"error"}: what is wrong, for the model to read
    end: int  # of it in the text; what follows does not count
    form: str  # "tag", "fence", "tool_call", "mistral", "json", or "python_tag"


def first_calls(
    text: str,
    *,
    names: Collection[str],
    tags: Mapping[str, tuple[str, str]],
    fences: Mapping[str, tuple[str, str]],
    unclosed: bool = False,
) -> CallSpan | None:
    """The first complete tool call in a reply, in any form that models are trained on; None: it has none.

    `names` are the tools there are. `tags` and `fences` tell for `<python>` and for a fenced block of `python` which
    tool it calls, and which argument its text is. Calls that a model weighs while it thinks do not count, unless its
    thinking has no end. A call that is begun and not finished is an error, unless `unclosed` lets a tag's text go on to
    the end of the reply: a model that is stopped at the closing tag leaves it out.
    """
    start = text.rfind("</think>") + 1
    bare = text[start and start + 7 :].lstrip()
    if bare.startswith(("{", "[", "<|python_tag|>")):
        found = _bare_calls(text, len(text) - len(bare), names, fences)
        if found is not None:
            return found
    openers = re.compile(
        "|".join(
            [
                *(f"<{re.escape(tag)}>" for tag in ("tool_call", *tags)),
                r"```[ \t]*\n?[A-Za-z_]+[ \t]*\n",
                r"\[TOOL_CALLS\]",
            ]
        )
    )
    without_end: set[str] = set()  # closing marks that do not come any more: no need to look again
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
                error = f"a call that begins with {mark} has to end with {closer}; nothing was called"
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
    """Calls in the plainest form that `first_calls` reads."""
    return "\n".join(f"<tool_call>{json.dumps(dict(call), ensure_ascii=False)}</tool_call>" for call in calls)


def _one(called: tuple[str, str], body: str, end: int, form: str) -> CallSpan:
    name, argument = called
    return CallSpan(
        calls=({"name": name, "arguments": {argument: body.strip("\n") if "\n" in body else body.strip()}},),
        end=end,
        form=form,
    )


def _tagged_calls(text: str, body: int, end: int) -> CallSpan:
    """`<tool_call>` at `body`, and those that follow it directly."""
    calls: list[dict[str, Any]] = []
    opener, closer = "<tool_call>", "</tool_call>"
    while True:
        found, wrong = _json_calls(text[body:end].strip())
        calls += found or [{"error": wrong}]
        stop = end + len(closer)
        following = _BETWEEN.match(text, stop)
        body = following.end() + len(opener) if following else stop  # it matches nothing, too
        if not text.startswith(opener, body - len(opener)):
            break
        end = text.find(closer, body)
        if end < 0:
            break
    return CallSpan(calls=tuple(calls), end=stop, form="tool_call")


def _mistral_calls(text: str, body: int) -> CallSpan:
    """Behind `[TOOL_CALLS]`: a list, or `name[ARGS]{...}` and more of the same."""
    calls: list[dict[str, Any]] = []
    while True:
        name, marker, _ = text[body : body + 200].partition("[ARGS]")
        start = body + len(name) + len(marker) if marker and not name.lstrip().startswith(("{", "[")) else body
        start += len(text[start : start + TAIL]) - len(text[start : start + TAIL].lstrip())
        value, end = _read_json(text, start)
        if end == start:
            error = f"what follows [TOOL_CALLS] is not JSON: {_why_not_json(text[start:])}"
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
    """Llama's form: the reply is a call. JSON that is none of ours is left to the environment."""
    marker = "<|python_tag|>"
    tagged = text.startswith(marker, start)
    start += len(marker) if tagged else 0
    calls: list[dict[str, Any]] = []
    end = start
    while True:
        value, stop = _read_json(text, _BETWEEN.match(text, end).end())  # type: ignore[union-attr]  # it matches nothing, too
        items = [as_tool_call(item) for item in (value if isinstance(value, list) else [value])]
        known = [item for item in items if item is not None and item["name"] in names]
        if not known or len(known) < len(items):
            break
        calls += known
        end = stop
    if calls:
        return CallSpan(calls=tuple(calls), end=end, form="json")
    if tagged and "python" in fences:
        return _one(fences["python"], text[start:], len(text), "python_tag")
    return None


_SHAPE = 'a call is an object with "name" and "arguments", which is an object, too'


def _json_calls(text: str) -> tuple[list[dict[str, Any]], str]:
    """The calls that a text holds and nothing else; or none, and what is wrong with it."""
    try:
        value = _JSON.decode(text)
    except (ValueError, RecursionError):
        return [], f"what stands between the tags is not JSON: {_why_not_json(text)}"
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
    return "there is more behind it"

"""Parse actions in WebArena's form, `click [12]`, and in BrowserGym's form, `click('12')`, into one kind of command."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from palestra.parsing import clip
from palestra.parsing.actions import after_thinking, react_action

MAX_REPLY_CHARS = 20_000  # only the end of a longer reply is searched
MAX_TEXT_CHARS = 5_000  # maximum number of characters in the text of an action


class BadAction(Exception):
    """Raised if no action can be parsed; the message is the observation."""


@dataclass(frozen=True, slots=True)
class Command:
    """One parsed action: its name, and its arguments in the order of `ARGUMENTS`."""

    name: str
    args: tuple[Any, ...] = ()


# Name -> arguments. `id` is an element's number, `?` marks optional arguments.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "click": ("id",),
    "dblclick": ("id",),
    "hover": ("id",),
    "focus": ("id",),
    "clear": ("id",),
    "type": ("id", "text", "enter?"),
    "fill": ("id", "text"),
    "select": ("id", "options"),
    "select_text": ("id", "start", "end"),
    "drag": ("id", "id"),
    "press": ("keys",),
    "press_on": ("id", "keys"),
    "keyboard_type": ("text",),
    "scroll": ("direction",),
    "scroll_by": ("number", "number"),
    "mouse_click": ("number", "number"),
    "mouse_dblclick": ("number", "number"),
    "mouse_move": ("number", "number"),
    "mouse_down": ("number", "number"),
    "mouse_up": ("number", "number"),
    "mouse_drag": ("number", "number", "number", "number"),
    "wait": ("number?",),
    "new_tab": (),
    "tab_focus": ("index",),
    "close_tab": (),
    "goto": ("url",),
    "go_back": (),
    "go_forward": (),
    "stop": ("answer?",),
}
SYNONYMS = {
    "double_click": "dblclick",
    "drag_and_drop": "drag",
    "go_home": "goto",
    "keyboard_insert_text": "keyboard_type",
    "keyboard_press": "press",
    "mouse_drag_and_drop": "mouse_drag",
    "noop": "wait",
    "page_close": "close_tab",
    "page_focus": "tab_focus",
    "report_infeasible": "infeasible",
    "select_option": "select",
    "send_msg_to_user": "stop",
    "tab_close": "close_tab",
    "tab_new": "new_tab",
}
_NAMES = {*ARGUMENTS, *SYNONYMS}
_CALL = re.compile(r"([a-z_]+)\s*\(.*\)\s*;?", re.S)
_BRACKETS = re.compile(r"([a-z_]+)\s*((?:\[.*\])?)\s*\.?", re.S)
_FENCE = re.compile(r"```(?:[a-z]*\n)?(.+?)```", re.S)
_NUMBER = re.compile(r"[+-]?\d{1,6}(?:\.\d{1,6})?")


def parse_action(reply: str) -> Command:
    """Return the action in a reply: after the last `Action:`, in the last fence, or on the last line.

    Raises BadAction with an explanation for the agent.
    """
    text = find_action(reply)
    if not text:
        raise BadAction("Your reply contains no action. Write one action, for example: click [12]")
    call = _CALL.fullmatch(text)
    if call is not None and (call[1] in _NAMES or "[" not in text.partition("(")[0]):
        return _from_call(text, call[1])
    match = _BRACKETS.fullmatch(text)
    if match is None:
        raise BadAction(f"{clip(text, 80)!r} is not an action. {_FORMS}")
    return _from_brackets(match[1], match[2], text)


def is_action(reply: str) -> bool:
    """Return whether a reply contains an action."""
    try:
        parse_action(reply)
    except BadAction:
        return False
    return True


_FORMS = (
    "Actions are click [id], type [id] [text] [0|1], select [id] [option], hover [id], drag [id] [id], press [keys], "
    "scroll [up|down], wait, goto [url], go_back, go_forward, new_tab, tab_focus [index], close_tab, stop [answer]."
)


def find_action(reply: str) -> str:
    """Return the part of a reply that is the action, with its spaces unchanged."""
    text = after_thinking(reply[-MAX_REPLY_CHARS:])
    action = react_action(text)
    if action is not None:
        text = action
    fenced = _FENCE.findall(text)
    if fenced:
        return str(fenced[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    if action is not None and not _looks_like_action(lines[0]):
        return text.strip() if _looks_like_action(text.strip()) else lines[0].strip("`* ")
    chosen = lines[0] if action is not None else lines[-1]
    if not chosen.endswith(("]", ")")) and "[" in text and _looks_like_action(text.strip()):
        return text.strip()  # a text of several lines
    return chosen.strip("`* ")


def _looks_like_action(text: str) -> bool:
    name = re.match(r"[a-z_]+", text)
    return name is not None and name[0] in _NAMES and (_CALL.fullmatch(text) or _BRACKETS.fullmatch(text)) is not None


def _from_brackets(name: str, rest: str, text: str) -> Command:
    name = SYNONYMS.get(name, name)
    kinds = _kinds(name)
    if not rest:
        return _command(name, [])
    inner = rest[1:-1]
    if len(kinds) <= 1:
        return _command(name, [inner])
    if name == "type":
        parts = re.fullmatch(r"\[([^\[\]]*)\]\s*\[(.*)\]\s*\[(?:press_enter_after=)?([01])\]", rest, re.S)
        parts = parts or re.fullmatch(r"\[([^\[\]]*)\]\s*\[(.*)\]", rest, re.S)
        if parts is None:
            raise BadAction(
                f"{clip(text, 80)!r} is incomplete; write type [id] [text] [1], or [0] instead of [1] to skip Enter"
            )
        return _command(name, list(parts.groups()))
    if name in ("fill", "select", "press_on"):
        parts = re.fullmatch(r"\[([^\[\]]*)\]\s*\[(.*)\]", rest, re.S)
        if parts is None:
            raise BadAction(f"{clip(text, 80)!r} is not complete; write {_form(name)}")
        return _command(name, list(parts.groups()))
    return _command(name, re.split(r"\]\s*\[|\s*,\s*", inner))


def _from_call(text: str, name: str) -> Command:
    if name not in _NAMES and name != "report_infeasible":
        _kinds(name)
    try:
        node = ast.parse(text.rstrip("; \n"), mode="eval").body
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise ValueError
        args = [ast.literal_eval(arg) for arg in node.args]
        keywords = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise BadAction(
            f"{clip(text, 80)!r} is not a valid call; arguments are quoted texts or numbers, as in fill('12', 'text')"
        ) from None
    if name in ("click", "dblclick", "mouse_click", "mouse_dblclick"):  # only the left mouse button is supported
        keywords.pop("button", None)
        keywords.pop("modifiers", None)
        args = args[: 1 if name in ("click", "dblclick") else 2]
    args += list(keywords.values())
    if name == "scroll" and len(args) == 2 and all(isinstance(arg, (int, float)) for arg in args):
        return _command("scroll_by", args)
    if name == "press" and len(args) == 2:
        return _command("press_on", args)
    if name == "report_infeasible":
        return Command("stop", ("N/A",))
    if name == "noop":
        args = [value / 1000 for value in args[:1] if isinstance(value, (int, float))]
    if name == "type" and len(args) == 2:
        args.append(0)  # do not press Enter, as in `fill`
    return _command(SYNONYMS.get(name, name), args)


def _kinds(name: str) -> tuple[str, ...]:
    kinds = ARGUMENTS.get(SYNONYMS.get(name, name))
    if kinds is None:
        close = get_close_matches(name, _NAMES, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise BadAction(f"{clip(name, 40)!r} is not an action.{hint} {_FORMS}")
    return kinds


def _form(name: str) -> str:
    return " ".join([name, *(f"[{kind.rstrip('?')}]" for kind in ARGUMENTS[name])])


def _command(name: str, args: list[Any]) -> Command:
    kinds = _kinds(name)
    least = sum(1 for kind in kinds if not kind.endswith("?"))
    if not least <= len(args) <= len(kinds):
        count = f"{least}" if least == len(kinds) else f"{least} to {len(kinds)}"
        raise BadAction(f"{name} takes {count} argument{'' if count == '1' else 's'}: {_form(name)}")
    return Command(name, tuple(_value(name, kind.rstrip("?"), arg) for kind, arg in zip(kinds, args, strict=False)))


def _value(name: str, kind: str, arg: Any) -> Any:
    if kind == "options":
        options = arg if isinstance(arg, (list, tuple)) else [arg]
        return tuple(_encodable(str(option))[:MAX_TEXT_CHARS] for option in options)
    text = str(arg).strip() if kind not in ("text",) else str(arg)
    text = _encodable(text)
    if kind in ("id", "index", "start", "end"):
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise BadAction(f"{name} needs the number of an element, such as {name} [12]; got {clip(text, 40)!r}")
        return int(text)
    if kind == "number":
        if not _NUMBER.fullmatch(text):
            raise BadAction(f"{name} needs a number, got {clip(text, 40)!r}")
        return float(text)
    if kind == "enter":
        return text not in ("0", "False", "false", "None")
    if kind == "direction":
        direction = text.removeprefix("direction=").lower()
        if direction not in ("up", "down", "left", "right"):
            raise BadAction(f"scroll needs a direction: scroll [up], scroll [down]; got {clip(text, 40)!r}")
        return direction
    if len(text) > MAX_TEXT_CHARS:
        raise BadAction(f"the text of {name} must not be longer than {MAX_TEXT_CHARS} characters, got {len(text)}")
    return text


def _encodable(text: str) -> str:
    """Replace lone surrogates, which cannot be sent to the browser."""
    return text.encode("utf-8", "replace").decode()

"""Find answers in boxes and tags, parse integers, and clip texts for messages."""

from __future__ import annotations

import re

TAIL = 8_000  # braces are matched within this many characters, to bound the time

_BOX = "\\boxed{"
_BRACES = re.compile(r"\\boxed\{|[{}]")
_INT = re.compile(r"[+-]?[0-9]{1,9}")
_SMALL = {str(number): number for number in range(100)}  # a lookup is faster than int()


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

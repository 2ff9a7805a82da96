"""Find the answer in what an agent wrote. Total: any string gives a result or None, in linear time."""

from __future__ import annotations

import re

_BOX = "\\boxed{"
_BRACES = re.compile(r"\\boxed\{|[{}]")
_INT = re.compile(r"[+-]?[0-9]{1,9}")


def last_boxed(text: str) -> str | None:
    r"""The content of the last closed `\boxed{...}`, or None."""
    _, found, rest = text.rpartition(_BOX)
    if not found:
        return None
    content, closed, _ = rest.partition("}")
    if closed and "{" not in content:
        return content
    depth = 1
    for brace in _BRACES.finditer(rest):
        depth += -1 if brace[0] == "}" else 1
        if depth == 0:
            return rest[: brace.start()]
    return _last_closed(text)


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
    if text.isdigit() and text.isascii() and len(text) < 10:
        return int(text)
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

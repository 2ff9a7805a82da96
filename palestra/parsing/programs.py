"""Find the program in a reply with fenced code blocks."""

from __future__ import annotations

import re
from collections.abc import Collection

_FENCE_LINE = re.compile(r"^[ \t]{0,3}```[ \t]*([^\n`]*)$", re.M)


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

"""Find the action in an agent's reply, which may contain reasoning before it."""

from __future__ import annotations

import re
from itertools import zip_longest

from palestra.parsing.boxes import last_tagged, read_answer
from palestra.parsing.markup import plain

_LABEL = re.compile(
    r"^[ \t]*[*#_]{0,4}(thought|action|observation)(?:[ \t]?[0-9]{1,3})?[*_]{0,2}[ \t]*:[*_]{0,2}", re.I | re.M
)
_INLINE_LABEL = re.compile(r"(?<![\w\"'`])[*_]{0,2}Action[*_]{0,2}[ \t]*:[*_]{0,2}[ \t]*(?=\S)")
_FENCE_LINE = re.compile(r"[ \t]*```[ \t]*[A-Za-z0-9_+-]*[ \t]*")
_FENCE = re.compile(r"```[a-z]*\n(.*?)\n?```", re.S)


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


def read_command(reply: str, *, max_chars: int = 8_000) -> str:
    r"""Return the command in a reply, as one line with single spaces and without markup; "" if there is none.

    The command is the first line after the last `Action:`, otherwise the content of the last `<action>`, `\boxed{}` or
    `<answer>`, otherwise the only fenced block if it has one line, otherwise the last line. Only the last `max_chars`
    characters of the reply are searched.
    """
    text = after_thinking(reply[-max_chars:])
    action = react_action(text)
    if action is not None:
        line = action if "\n" not in action else next(iter(_lines(action)), "")
        marked = read_answer(line) if "{" in line or "<" in line else None
        return " ".join(plain(line if marked is None else marked).split())
    marked = last_tagged(text, "action") if "</action>" in text else None
    if marked is None and ("\\" in text or "</answer>" in text):
        marked = read_answer(text)
    if marked is None and "```" in text:
        blocks = _FENCE.findall(text)
        if len(blocks) == 1 and len(_lines(blocks[0])) == 1:
            marked = blocks[0]
    lines = _lines(text if marked is None else marked)
    if not lines:
        return ""
    line = lines[-1]
    for label in _INLINE_LABEL.finditer(line):
        line = label.string[label.end() :]
    return " ".join(plain(line).split())


def _lines(text: str) -> list[str]:
    """Return the lines of a text, except empty lines and code fences."""
    return [line for line in text.splitlines() if line.strip() and not _FENCE_LINE.fullmatch(line)]

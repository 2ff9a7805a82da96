"""Parse the action of a reply: `<search>`, `<open>` or `<answer>`, outside of its thinking."""

from __future__ import annotations

import re
from typing import NamedTuple

SEARCH, OPEN, ANSWER = "search", "open", "answer"
_TAG = re.compile(r"<(/?)(think|search|open|answer)>", re.I)


class SearchAction(NamedTuple):
    """A parsed action."""

    kind: str  # SEARCH, OPEN or ANSWER
    text: str  # the text between the tags
    part: int = 1  # part of the page to open


def read_action(reply: str) -> SearchAction | None:
    """Return the first complete action, or None.

    Text after it is ignored: models that are not stopped there continue with invented results. Text inside
    `<think></think>` is ignored, and so is text before a `</think>` whose opening tag is part of the chat template.
    Without a complete action, an unclosed one counts, up to the next tag or the end: engines that stop at the closing
    tag omit it.
    """
    tags = [(match[2].lower(), bool(match[1]), match.start(), match.end()) for match in _TAG.finditer(reply)]
    think_ends = [index for index, (name, closing, *_) in enumerate(tags) if name == "think" and closing]
    think_already_open = next((closing for name, closing, *_ in tags if name == "think"), False)
    index = think_ends.pop(0) + 1 if think_already_open else 0
    think_ends.reverse()  # the next one is last
    unclosed: SearchAction | None = None
    while index < len(tags):
        name, closing, _, start = tags[index]
        index += 1
        if name == "think":
            while think_ends and think_ends[-1] < index:
                think_ends.pop()
            if not closing and think_ends:  # thinking that is never closed is parsed like other text
                index = think_ends.pop() + 1
        elif not closing:
            following = tags[index] if index < len(tags) else ("", False, len(reply), len(reply))
            action = SearchAction(name, reply[start : following[2]].strip())
            if following[:2] == (name, True):
                return action
            unclosed = unclosed or action
    return unclosed


def format_action(kind: str, text: str, thought: str = "") -> str:
    """Format a reply with that action."""
    return f"{f'<think>{thought}</think>' if thought else ''}<{kind}>{text}</{kind}>"

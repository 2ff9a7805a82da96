"""Parse the action in a reply, which is the first `<search>`, `<open>` or `<answer>` outside of `<think></think>`."""

from __future__ import annotations

import re
from typing import NamedTuple

from palestra.parsing import last_boxed

SEARCH, OPEN, ANSWER = "search", "open", "answer"
_TAG = re.compile(r"<(/?)(think|search|open|answer)>", re.I)


class SearchAction(NamedTuple):
    """A parsed action."""

    kind: str  # SEARCH, OPEN or ANSWER
    text: str  # the text between the tags
    part: int = 1  # part of the page to open


def read_action(reply: str) -> SearchAction | None:
    r"""Return the first complete action in a reply, or None.

    Text after the action is ignored, because a model that is not stopped there often invents search results. Text
    inside `<think></think>` is also ignored, and so is text before a `</think>` whose opening tag is part of the chat
    template. If no action is complete, the first unclosed one is returned, with the text up to the next tag or the end
    of the reply, because engines that stop at the closing tag omit that tag. A reply without these tags whose text
    after `</think>` contains `\boxed{}` is an answer.
    """
    action = _read_tags(reply)
    if action is None:
        answer = last_boxed(reply.rpartition("</think>")[2]) if "\\boxed{" in reply else None
        return None if answer is None else SearchAction(ANSWER, answer.strip())
    return action


def _read_tags(reply: str) -> SearchAction | None:
    tags = [(match[2].lower(), bool(match[1]), match.start(), match.end()) for match in _TAG.finditer(reply)]
    think_ends = [index for index, (name, closing, *_) in enumerate(tags) if name == "think" and closing]
    think_already_open = next((closing for name, closing, *_ in tags if name == "think"), False)
    index = think_ends.pop(0) + 1 if think_already_open else 0
    think_ends.reverse()  # so that pop() returns the next closing tag
    unclosed: SearchAction | None = None
    while index < len(tags):
        name, closing, _, start = tags[index]
        index += 1
        if name == "think":
            while think_ends and think_ends[-1] < index:
                think_ends.pop()
            if not closing and think_ends:  # an unclosed <think> is treated as ordinary text
                index = think_ends.pop() + 1
        elif not closing:
            following = tags[index] if index < len(tags) else ("", False, len(reply), len(reply))
            action = SearchAction(name, reply[start : following[2]].strip())
            if following[:2] == (name, True):
                return action
            unclosed = unclosed or action
    return unclosed


def format_action(kind: str, text: str, thought: str = "") -> str:
    """Format an action as a reply, with an optional thought before it."""
    return f"{f'<think>{thought}</think>' if thought else ''}<{kind}>{text}</{kind}>"

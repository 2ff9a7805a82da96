"""A reply -> the one action in it: `<search>`, `<open>` or `<answer>`, outside of its thinking."""

from __future__ import annotations

import re
from typing import NamedTuple

SEARCH, OPEN, ANSWER = "search", "open", "answer"
_TAG = re.compile(r"<(/?)(think|search|open|answer)>", re.I)


class Move(NamedTuple):
    """What the agent does."""

    kind: str  # SEARCH, OPEN or ANSWER
    text: str  # what stands between the tags
    part: int = 1  # of the page that is opened


def read_action(reply: str) -> Move | None:
    """The first action that is complete, or None.

    What follows it does not count: models that are not stopped there go on with results of their own invention. Neither
    does what stands in `<think></think>`, nor what precedes a `</think>` that the prompt's template opened. Without a
    complete action, one that is begun counts, up to the next tag or the end: engines that stop at the closing tag leave
    it out.
    """
    tags = [(match[2].lower(), bool(match[1]), match.start(), match.end()) for match in _TAG.finditer(reply)]
    thought_ends = [place for place, (name, closing, *_) in enumerate(tags) if name == "think" and closing]
    first_thought = next((closing for name, closing, *_ in tags if name == "think"), False)
    place = thought_ends.pop(0) + 1 if first_thought else 0
    thought_ends.reverse()  # the next one is at the end
    begun: Move | None = None
    while place < len(tags):
        name, closing, _, start = tags[place]
        place += 1
        if name == "think":
            while thought_ends and thought_ends[-1] < place:
                thought_ends.pop()
            if not closing and thought_ends:  # thinking without an end is read like anything else
                place = thought_ends.pop() + 1
        elif not closing:
            ends = tags[place] if place < len(tags) else ("", False, len(reply), len(reply))
            move = Move(name, reply[start : ends[2]].strip())
            if ends[:2] == (name, True):
                return move
            begun = begun or move
    return begun


def written(kind: str, text: str, thought: str = "") -> str:
    """A reply with that action."""
    return f"{f'<think>{thought}</think>' if thought else ''}<{kind}>{text}</{kind}>"

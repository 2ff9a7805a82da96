"""Find the action in the reply of an agent that may think first."""

from __future__ import annotations

import re
from itertools import zip_longest

_LABEL = re.compile(
    r"^[ \t]*[*#_]{0,4}(thought|action|observation)(?:[ \t]?[0-9]{1,3})?[*_]{0,2}[ \t]*:[*_]{0,2}", re.I | re.M
)
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

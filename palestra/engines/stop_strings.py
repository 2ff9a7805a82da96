"""Find out, token by token, whether a reply has come to one of its stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SLACK = 8  # tokens that may say nothing by themselves (halves of a character, marks of a word's start)


class StopStrings:
    """Watches one reply. Only its last tokens are decoded each time; a hit is confirmed on the whole."""

    def __init__(self, tokenizer: Any, stops: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        self._tail = max(len(stop.encode()) for stop in stops) + SLACK  # a token is a byte at least

    def reached(self, ids: Sequence[int], start: int) -> bool:
        """Whether the reply, which begins at `start`, contains a stop string."""
        tail = text_of(self._tokenizer, ids[max(start, len(ids) - self._tail) :])
        if not any(stop in tail for stop in self._stops):
            return False
        return cut(text_of(self._tokenizer, ids[start:]), self._stops)[1]


def cut(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The text before the first stop string, and whether there is one."""
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    return (text[: min(found)], True) if found else (text, False)


def text_of(tokenizer: Any, ids: Sequence[int]) -> str:
    """What ids say, special tokens included: a reader may need them (calls of tools, say)."""
    return str(tokenizer.decode(ids, skip_special_tokens=False))

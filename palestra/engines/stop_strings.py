"""Detect stop strings in a reply while it is sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

# Modules of the methods `decode` and `_decode` in transformers' fast tokenizers, in versions 5 and 4.
FAST_DECODERS = [
    ["transformers.tokenization_utils_base", "transformers.tokenization_utils_tokenizers"],
    ["transformers.tokenization_utils_base", "transformers.tokenization_utils_fast"],
]
SLACK = 8  # maximum number of tokens that decode to an empty string (partial characters, word-start markers)


class StopStrings:
    """Checks one reply. Each check decodes only the last tokens; a match is then verified on the whole reply."""

    def __init__(self, tokenizer: Any, stops: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        self._tail = max(len(stop.encode()) for stop in stops) + SLACK  # a token is at least one byte

    def reached(self, ids: Sequence[int], start: int) -> bool:
        """Return whether the reply, which starts at index `start` of `ids`, contains a stop string."""
        tail = text_of(self._tokenizer, list(ids[max(start, len(ids) - self._tail) :]))
        if not any(stop in tail for stop in self._stops):
            return False
        return cut(text_of(self._tokenizer, list(ids[start:])), self._stops)[1]


def cut(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """Return the text before the first stop string, and whether there is one."""
    positions = [at for stop in stops if (at := text.find(stop)) >= 0]
    return (text[: min(positions)], True) if positions else (text, False)


def decoder(tokenizer: Any) -> Callable[[Sequence[int]], str]:
    """Return the fastest function that returns the same text as `text_of`."""
    methods = [getattr(tokenizer, name, None) for name in ("decode", "_decode")]
    owners = [getattr(method, "__module__", "") for method in methods]
    if owners not in FAST_DECODERS or tokenizer.clean_up_tokenization_spaces:
        return partial(text_of, tokenizer)
    return partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=False)  # same text, fewer checks


def text_of(tokenizer: Any, ids: Sequence[int]) -> str:
    """Decode ids, including special tokens, which tool-call parsers may need."""
    return str(tokenizer.decode(ids, skip_special_tokens=False))

"""Text to ids and back to nothing hidden: special tokens count only where the template wrote them.

A text from outside (an observation, a reply) may spell a special token. `guard` puts a break into each such spelling;
`encode` encodes the pieces apart, so that the words stay words. Breaks survive a chat template as ordinary characters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from palestra.engines.base import Tokenizer

_MARK = "\ufdd0"  # a noncharacter: Unicode keeps it out of texts that travel
_BREAK = _MARK + "\ufdd1"
_ITSELF = _MARK + "\ufdd2"  # the mark, where a text holds it after all
_PROBES = ("", "a", " a b\n\n", "\tZ\u00e9\u4f60\U0001f600 1234, it's", "<a>\n x </a>  ")


class Encoded(NamedTuple):
    """A rendered text with its ids, and where its special tokens are in both."""

    text: str
    ids: list[int]
    spans: list[tuple[int, int]]  # in the text
    places: list[int]  # in the ids


class Codec:
    """A tokenizer, seen by agents."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.special = _special_tokens(tokenizer)
        self.special_ids = frozenset(self.special.values())
        self._spelling = {token_id: token for token, token_id in self.special.items()}
        spellings = sorted((token for token in self.special if len(token) > 1), key=len, reverse=True)
        self._spelt = re.compile("|".join(map(re.escape, spellings)) or "(?!)")
        self._encode = _encoder(tokenizer)
        self._tokenizer = tokenizer
        self._newline = self._encode("\n")
        self._glues = self._inner("a") != self._encode("a")  # True: the tokenizer puts a blank before a text

    def guard(self, text: str, keep: Collection[str] = ()) -> str:
        """`text` with every special token it spells broken up, but for those in `keep`."""
        found = self._spelt.search(text)
        if found is None and _MARK not in text:
            return text
        pieces: list[str] = []
        done = 0
        while found is not None:
            cut = found.start() + 1  # the search goes on inside the token: another may begin there
            if found[0] not in keep:
                pieces.append(text[done:cut].replace(_MARK, _ITSELF))
                done = cut
            found = self._spelt.search(text, cut)
        pieces.append(text[done:].replace(_MARK, _ITSELF))
        return _BREAK.join(pieces)

    def guard_sampled(self, text: str, ids: list[int]) -> str:
        """As `guard`, for a text a model sampled as `ids`: what it sampled as a special token stays one."""
        pieces: list[str] = []
        start = 0
        for end, token in enumerate([*ids, None]):
            if token is None or token in self._spelling:
                pieces.append(self.guard(self.decode(ids[start:end])))
                pieces.append("" if token is None else self._spelling[token])
                start = end + 1
        guarded = "".join(pieces)
        if unguarded(guarded) == text:
            return guarded
        # The pieces read otherwise apart (a decoder may drop a blank at their edge): go by the token, not by the place.
        return self.guard(text, {self._spelling[token] for token in ids if token in self._spelling})

    def encode(self, text: str, *, inside: bool = False) -> list[int]:
        """The ids of a rendered text. `inside`: other text stands before it, so that no blank is put in front."""
        if _MARK not in text:
            return self._inner(text) if inside and self._glues else self._encode(text)
        ids: list[int] = []
        for piece in text.split(_BREAK):
            piece = piece.replace(_ITSELF, _MARK)
            ids += self._inner(piece) if ids or inside else self._encode(piece)
        return ids

    def encoded(self, text: str, like: Encoded | None = None) -> Encoded:
        """`encode`, quicker where `text` begins as one did that was encoded before: what stands before a special token
        has the same ids whatever comes behind."""
        start, ids = 0, []
        if like is not None:
            shared = _shared(text, like.text)
            at = bisect_right(like.spans, shared, key=lambda span: span[1]) - 1
            if at >= 0:
                start, ids = like.spans[at][0], like.ids[: like.places[at]]
        ids = ids + self.encode(text[start:], inside=start > 0)
        spans = [found.span() for found in self._spelt.finditer(text)]
        places = [place for place, token in enumerate(ids) if token in self.special_ids]
        if len(spans) != len(places):  # a special token written in a way not known here
            spans, places = [], []
        return Encoded(text, ids, spans, places)

    def leading(self, ids: list[int]) -> int:
        """How many special tokens `ids` begins with."""
        for count, token in enumerate(ids):
            if token not in self.special_ids:
                return count
        return len(ids)

    def first_special(self, text: str) -> str:
        """The special token that `text` begins with, or ""."""
        found = self._spelt.match(text)
        return found[0] if found else ""

    def decode(self, ids: list[int]) -> str:
        """The text, special tokens included."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False)) if ids else ""

    def _inner(self, text: str) -> list[int]:
        ids = self._encode("\n" + text)
        head = len(self._newline)
        return ids[head:] if ids[:head] == self._newline else self._encode(text)


def unguarded(text: str) -> str:
    """A rendered text as a reader would see it, without breaks."""
    return text.replace(_BREAK, "").replace(_ITSELF, _MARK) if _MARK in text else text


def _shared(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _special_tokens(tokenizer: Any) -> dict[str, int]:
    """Control tokens by spelling. Added tokens that are not special (<think>, <tool_call>) are words of the model."""
    added = getattr(tokenizer, "added_tokens_decoder", None)
    if added is not None:
        found = {str(token.content): int(token_id) for token_id, token in added.items() if token.special}
    else:
        found = {
            str(tokenizer.decode([token_id], skip_special_tokens=False)): int(token_id)
            for token_id in getattr(tokenizer, "all_special_ids", ())
        }
    found.pop("", None)
    return found


def _encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """The quickest way to `tokenizer.encode` that gives the same."""

    def careful(text: str) -> list[int]:
        try:
            return list(tokenizer.encode(text, add_special_tokens=False))
        except (TypeError, UnicodeEncodeError):  # a lone surrogate, which has no bytes
            return list(tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False))

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not all(hasattr(backend, name) for name in ("truncation", "padding", "encode")):
        return careful

    def quick(text: str) -> list[int]:
        # Others who share the tokenizer may have left it truncating or padding.
        if backend.truncation is not None or backend.padding is not None or backend.encode_special_tokens:
            return careful(text)
        try:
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError):
            return careful(text)
        return ids

    probes = [*_PROBES, *(f"x {token} y" for token in list(_special_tokens(tokenizer))[:8])]
    return quick if all(quick(text) == careful(text) for text in probes) else careful

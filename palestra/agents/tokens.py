"""Tokenization that recognizes special tokens only if the chat template wrote them.

An untrusted text (an observation, a reply) may contain the spelling of a special token. `guard` inserts a break into
each such spelling, and `encode` encodes the pieces separately, so that they remain ordinary text. Breaks pass through a
chat template as ordinary characters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from palestra.engines.base import Tokenizer

_MARK = "\ufdd0"  # a Unicode noncharacter, which ordinary text does not contain
_BREAK = _MARK + "\ufdd1"
_ESCAPED_MARK = _MARK + "\ufdd2"  # replaces marks that a text already contains
_PROBES = ("", "a", " a b\n\n", "\tZ\u00e9\u4f60\U0001f600 1234, it's", "<a>\n x </a>  ")


class Encoded(NamedTuple):
    """A rendered text with its ids, and the positions of its special tokens in both."""

    text: str
    ids: list[int]
    spans: list[tuple[int, int]]  # (start, end) of each special token in `text`
    places: list[int]  # index of each special token in `ids`


class Codec:
    """Encodes guarded texts with a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.special = _special_tokens(tokenizer)
        self.special_ids = frozenset(self.special.values())
        self._spelling = {token_id: token for token, token_id in self.special.items()}
        spellings = sorted((token for token in self.special if len(token) > 1), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, spellings)) or "(?!)")
        self._encode = _encoder(tokenizer)
        self._tokenizer = tokenizer
        self._newline = self._encode("\n")
        # Whether the tokenizer adds a space before a text.
        self._adds_prefix_space = self._inner("a") != self._encode("a")

    def guard(self, text: str, keep: Collection[str] = ()) -> str:
        """Insert a break into the spelling of every special token in `text`, except those in `keep`."""
        match = self._pattern.search(text)
        if match is None and _MARK not in text:
            return text
        pieces: list[str] = []
        done = 0
        while match is not None:
            cut = match.start() + 1  # continue the search inside this token, because another token may start within it
            if match[0] not in keep:
                pieces.append(text[done:cut].replace(_MARK, _ESCAPED_MARK))
                done = cut
            match = self._pattern.search(text, cut)
        pieces.append(text[done:].replace(_MARK, _ESCAPED_MARK))
        return _BREAK.join(pieces)

    def guard_sampled(self, text: str, ids: list[int]) -> str:
        """Guard a text that was sampled as `ids`, except for tokens that were sampled as special tokens."""
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
        # The separately decoded pieces differ from the text (a decoder may strip spaces), so select the special tokens
        # to keep by their spelling.
        return self.guard(text, {self._spelling[token] for token in ids if token in self._spelling})

    def encode(self, text: str, *, inside: bool = False) -> list[int]:
        """Return the ids of a rendered text. With `inside`, it continues other text, so no prefix space is added."""
        if _MARK not in text:
            return self._inner(text) if inside and self._adds_prefix_space else self._encode(text)
        ids: list[int] = []
        for piece in text.split(_BREAK):
            piece = piece.replace(_ESCAPED_MARK, _MARK)
            ids += self._inner(piece) if ids or inside else self._encode(piece)
        return ids

    def encoded(self, text: str, like: Encoded | None = None) -> Encoded:
        """Encode a text, reusing the ids of the prefix that it shares with `like` up to the last special token."""
        start, ids = 0, []
        if like is not None:
            shared = _common_prefix(text, like.text)
            at = bisect_right(like.spans, shared, key=lambda span: span[1]) - 1
            if at >= 0:
                start, ids = like.spans[at][0], like.ids[: like.places[at]]
        ids = ids + self.encode(text[start:], inside=start > 0)
        spans = [match.span() for match in self._pattern.finditer(text)]
        places = [place for place, token in enumerate(ids) if token in self.special_ids]
        if len(spans) != len(places):  # a special token has more than one spelling
            spans, places = [], []
        return Encoded(text, ids, spans, places)

    def leading(self, ids: list[int]) -> int:
        """Return the number of special tokens at the start of `ids`."""
        for count, token in enumerate(ids):
            if token not in self.special_ids:
                return count
        return len(ids)

    def first_special(self, text: str) -> str:
        """Return the special token at the start of `text`, or ""."""
        match = self._pattern.match(text)
        return match[0] if match else ""

    def decode(self, ids: list[int]) -> str:
        """Return the text for the ids, including special tokens."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False)) if ids else ""

    def _inner(self, text: str) -> list[int]:
        ids = self._encode("\n" + text)
        head = len(self._newline)
        return ids[head:] if ids[:head] == self._newline else self._encode(text)


def unguarded(text: str) -> str:
    """Return a rendered text without breaks."""
    return text.replace(_BREAK, "").replace(_ESCAPED_MARK, _MARK) if _MARK in text else text


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _special_tokens(tokenizer: Any) -> dict[str, int]:
    """Map the spelling of each special token to its id. Other added tokens (<think>, <tool_call>) are ordinary text."""
    added = getattr(tokenizer, "added_tokens_decoder", None)
    if added is not None:
        tokens = {str(token.content): int(token_id) for token_id, token in added.items() if token.special}
    else:
        tokens = {
            str(tokenizer.decode([token_id], skip_special_tokens=False)): int(token_id)
            for token_id in getattr(tokenizer, "all_special_ids", ())
        }
    tokens.pop("", None)
    return tokens


def _encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Return the fastest function that returns the same ids as `tokenizer.encode`."""

    def encode_slow(text: str) -> list[int]:
        try:
            return list(tokenizer.encode(text, add_special_tokens=False))
        except (TypeError, UnicodeEncodeError):  # the text contains an unpaired surrogate, which UTF-8 cannot encode
            return list(tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False))

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not all(hasattr(backend, name) for name in ("truncation", "padding", "encode")):
        return encode_slow

    def encode_fast(text: str) -> list[int]:
        # Another user of the tokenizer may have enabled truncation or padding.
        if backend.truncation is not None or backend.padding is not None or backend.encode_special_tokens:
            return encode_slow(text)
        try:
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError):
            return encode_slow(text)
        return ids

    probes = [*_PROBES, *(f"x {token} y" for token in list(_special_tokens(tokenizer))[:8])]
    return encode_fast if all(encode_fast(text) == encode_slow(text) for text in probes) else encode_slow

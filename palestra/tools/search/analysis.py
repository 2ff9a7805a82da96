"""Split text into terms: convert it to lower case, remove accents and English stop words, and stem the words."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable
from typing import Any

from palestra.errors import BadValue
from palestra.optional import require

# Chinese, Japanese and Korean are written without spaces, so each character is treated as a word.
_WORD = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]"
    "|[^\\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)
_ASCII_WORD = re.compile("[a-z0-9]+")
STOP_WORDS = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "from", "had", "has", "have", "he", "her", "his",
    "if", "in", "into", "is", "it", "its", "me", "my", "no", "not", "of", "on", "or", "our", "s", "she", "so",
    "such", "t", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "to", "was",
    "we", "were", "what", "when", "where", "which", "who", "will", "with", "would", "you", "your", "did", "do",
    "does", "how",
})  # fmt: skip
DROPPED = -1  # term number of words that are not indexed
_stemmers = threading.local()  # a Stemmer must not be used by several threads at once

Analyse = Callable[[str], str | None]


def raw_words(text: str) -> list[str]:
    """Return the words in a text, in lower case."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def analyser(name: str) -> Analyse:
    """Return a function that maps a word to its term, or to None if the word is not indexed.

    "english" drops stop words and stems the others; "plain" keeps every word.
    """
    if name not in _ANALYSERS:
        raise BadValue(f"`analyser` must be one of {', '.join(_ANALYSERS)}; got {name!r}")
    return _ANALYSERS[name]


def _plain(word: str) -> str | None:
    return word if word.isascii() else _folded(word)


def _english(word: str) -> str | None:
    word = word if word.isascii() else _folded(word)
    return None if word in STOP_WORDS else stem(word)


def stem(word: str) -> str:
    """Return the Porter stem of a lower-case word; words shorter than three letters or not in a-z are unchanged."""
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    stemmer: Any = getattr(_stemmers, "porter", None)
    if stemmer is None:
        stemmer = _stemmers.porter = require("Stemmer", extra="search").Stemmer("porter")
    return str(stemmer.stemWord(word))


def _folded(word: str) -> str:
    """Return the word without accents if the result is ASCII; otherwise return the word unchanged."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    return plain if plain and plain.isascii() else word


_ANALYSERS: dict[str, Analyse] = {"english": _english, "plain": _plain}

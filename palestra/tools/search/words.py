"""Text -> the terms that are counted: lower case, without accents, common English words left out, English stems."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from palestra.errors import BadValue
from palestra.tools.search.stem import stem

# Chinese, Japanese and Korean write no spaces, so each of their characters is a word.
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
DROPPED = -1  # in place of a term's number

Analyse = Callable[[str], str | None]


def raw_words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def analyser(name: str) -> Analyse:
    """Word -> term, None for a word that does not count: "english" (stop words, stems) or "plain" (every word)."""
    if name not in _ANALYSERS:
        raise BadValue(f"no analyser {name!r}; there are: {', '.join(_ANALYSERS)}")
    return _ANALYSERS[name]


def _plain(word: str) -> str | None:
    return word if word.isascii() else _folded(word)


def _english(word: str) -> str | None:
    word = word if word.isascii() else _folded(word)
    return None if word in STOP_WORDS else stem(word)


def _folded(word: str) -> str:
    """Without accents, where nothing but ASCII is left."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
    return bare if bare and bare.isascii() else word


_ANALYSERS: dict[str, Analyse] = {"english": _english, "plain": _plain}

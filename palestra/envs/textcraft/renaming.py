"""Exchange names in texts, so that an agent has to read the recipes in its prompt instead of remembering them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from random import Random

_WORDS = re.compile(r"\b[a-z]+(?: [a-z]+)*")  # words between numbers, punctuation and capital letters


class Renaming:
    """A random permutation of names that consist of lower-case words."""

    def __init__(self, names: Iterable[str], rng: Random) -> None:
        names = sorted(name for name in names if _WORDS.fullmatch(name))
        shown = names.copy()
        rng.shuffle(shown)
        self._shown = dict(zip(names, shown, strict=True))
        self._original = dict(zip(shown, names, strict=True))
        self._longest = max((name.count(" ") + 1 for name in names), default=1)

    def show(self, text: str) -> str:
        """Return `text` with the exchanged names."""
        return self._replace(text, self._shown)

    def restore(self, text: str) -> str:
        """Return `text`, which contains exchanged names, with the original names."""
        return self._replace(text, self._original)

    def _replace(self, text: str, table: Mapping[str, str]) -> str:
        return _WORDS.sub(lambda match: self._replace_words(match[0].split(" "), table), text)

    def _replace_words(self, words: list[str], table: Mapping[str, str]) -> str:
        replaced: list[str] = []
        start = 0
        while start < len(words):
            for end in range(min(len(words), start + self._longest), start, -1):  # the longest name first
                name = table.get(" ".join(words[start:end]))
                if name is not None:
                    break
            else:
                name, end = words[start], start + 1
            replaced.append(name)
            start = end
        return " ".join(replaced)

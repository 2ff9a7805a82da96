"""A question -> its answer, by searching and reading alone: the reference that shows every question can be answered.

It knows the ways in which questions and articles are worded, and nothing of the world: `search` is a search tool's own
text for a query, `Doc 1(Title: ...) ...`. It reads the question from the outside in, looks up the page that is named
innermost, and follows what the pages tell. What no page tells is "unknown".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from palestra.envs.world.articles import MONTHS
from palestra.envs.world.phrases import COMPARISONS, COUNTS, RELATIONS, UNKNOWN, Comparison, Count
from palestra.envs.world.reader import Reading, read

Search = Callable[[str], str]

_DOC = re.compile(r"^Doc [0-9]+\(Title: (.*?)\) ", re.M)


class Solver:
    """Answers questions through one search tool; what it has read it remembers."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._read: dict[str, Reading] = {}
        self._absent: set[str] = set()
        self.searches = 0

    def answer(self, question: str) -> str:
        """The answer, or "unknown"."""
        for comparison, most, pattern in _comparisons():
            match = pattern.fullmatch(question)
            if match is not None:
                return self._compared(comparison, most, match["a"], match["b"]) or UNKNOWN
        for count, pattern in _counts():
            match = pattern.fullmatch(question)
            if match is not None:
                number = self._counted(count, match.groupdict())
                return UNKNOWN if number is None else str(number)
        for names, pattern in _asks():
            match = pattern.fullmatch(question)
            if match is not None:
                found = self._told(match["x"], names)
                if found is not None:
                    return found
        return UNKNOWN

    # Reading

    def page(self, phrase: str) -> Reading | None:
        """The page that a title or a noun phrase stands for."""
        for names, pattern in _nouns():
            match = pattern.fullmatch(phrase)
            if match is not None:
                title = self._told(match["x"], names)
                if title is not None:
                    return self.lookup(title)
        title = phrase.removeprefix("the ")
        return self.lookup(title) if title[:1].isupper() else None

    def _told(self, phrase: str, names: tuple[str, ...]) -> str | None:
        """What the page that `phrase` stands for tells of the first of `names` that it tells anything of."""
        page = self.page(phrase)
        if page is None:
            return None
        return next((page.facts[name] for name in names if name in page.facts), None)

    def lookup(self, title: str) -> Reading | None:
        """The article of that title, searched for in several ways."""
        if title not in self._read and title not in self._absent:
            for query in queries(title):
                self.searches += 1
                self._take(self._search(query))
                if title in self._read:
                    break
            else:
                self._absent.add(title)
        return self._read.get(title)

    def _take(self, found: str) -> None:
        """Read every article in a search result, also those not asked for."""
        marks = list(_DOC.finditer(found))
        for place, mark in enumerate(marks):
            end = marks[place + 1].start() - 1 if place + 1 < len(marks) else len(found)
            if mark[1] not in self._read:
                reading = read(mark[1], found[mark.end() : end])
                if reading is not None:
                    self._read[mark[1]] = reading

    # Comparing and counting

    def _compared(self, comparison: Comparison, most: bool, *phrases: str) -> str | None:
        pages = [self.page(phrase) for phrase in phrases]
        ranked = [
            (_key(page.facts[comparison.relation]), page.title)
            for page in pages
            if page is not None and comparison.relation in page.facts
        ]
        if len(ranked) < len(pages):
            return None
        return (max(ranked) if most else min(ranked))[1]

    def _counted(self, count: Count, said: dict[str, str]) -> int | None:
        page = self.page(said["x"])
        if page is None or page.kind != count.kind:
            return None
        items = page.lists.get(count.items, ())
        if not count.test:
            return len(items)
        number = 0
        for title in items:
            item = self.lookup(title)
            if item is None:
                return None
            value = item.facts.get(count.relation)
            number += value is not None and _passes(count.test, value, said["y"])
        return number


def _passes(test: str, value: str, limit: str) -> bool:
    if test == "is":
        return value == limit
    return _key(value) < _key(limit) if test == "before" else _key(value) > _key(limit)


def _key(value: str) -> tuple[int, ...]:
    """A number or a date as something to compare."""
    words = value.replace(",", "").split()
    if len(words) == 3:
        return int(words[2]), MONTHS.index(words[1]), int(words[0])
    return (int(words[0]),)


# What articles of a kind have in common, whatever their wording: with a title, it finds the article among all
# that only name it.
_COMMON = (
    "capital provinces square kilometres mountain river",
    "city province inhabitants people metres above sea",
    "province square kilometres capital cities",
    "born died",
    "completed",
    "river kilometres long",
    "mountain metres high first",
    "founded members",
    "began days",
)


def queries(title: str) -> list[str]:
    """What finds the page of that title: its words; these with what each kind of article says; its longest word."""
    return [title, f"{title} {title}", *(f"{title} {title} {words}" for words in _COMMON), max(title.split(), key=len)]


def _pattern(sentence: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w)\\\}", r"(?P<\1>.+)", re.escape(sentence)))


@cache
def _asks() -> list[tuple[tuple[str, ...], re.Pattern[str]]]:
    return _patterns({name: relation.asks for name, relation in RELATIONS.items()})


@cache
def _nouns() -> list[tuple[tuple[str, ...], re.Pattern[str]]]:
    return _patterns({name: relation.nouns for name, relation in RELATIONS.items()})


def _patterns(wordings: dict[str, tuple[str, ...]]) -> list[tuple[tuple[str, ...], re.Pattern[str]]]:
    """Each wording once, with the relations it may stand for; the longest first, as it says most."""
    by_words: dict[str, list[str]] = {}
    for name, sentences in wordings.items():
        for sentence in sentences:
            by_words.setdefault(sentence, []).append(name)
    return [(tuple(by_words[words]), _pattern(words)) for words in sorted(by_words, key=lambda w: (-len(w), w))]


@cache
def _comparisons() -> list[tuple[Comparison, bool, re.Pattern[str]]]:
    return [
        (comparison, most, _pattern(comparison.most if most else comparison.least))
        for comparison in COMPARISONS
        for most in (True, False)
    ]


@cache
def _counts() -> list[tuple[Count, re.Pattern[str]]]:
    return [(count, _pattern(count.ask)) for count in COUNTS]

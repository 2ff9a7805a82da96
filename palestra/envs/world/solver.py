"""Reference solver, which shows that every question can be answered by searching and reading alone.

The solver uses the templates for questions and articles, but no data from the world. Its `search` argument is a
function that returns the search tool's text for a query, in the form `Doc 1(Title: ...) ...`. The solver parses nested
noun phrases down to the innermost title, looks up the page with this title, and follows the relations stated on the
pages. If a fact is missing, the answer is "unknown".
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
    """Solver that answers questions with a search function and caches the pages it has read."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._read: dict[str, Reading] = {}
        self._absent: set[str] = set()
        self.searches = 0

    def answer(self, question: str) -> str:
        """Return the answer, or "unknown"."""
        for comparison, most, pattern in _comparisons():
            match = pattern.fullmatch(question)
            if match is not None:
                return self._compare(comparison, most, match["a"], match["b"]) or UNKNOWN
        for count, pattern in _counts():
            match = pattern.fullmatch(question)
            if match is not None:
                number = self._count(count, match.groupdict())
                return UNKNOWN if number is None else str(number)
        for names, pattern in _question_patterns():
            match = pattern.fullmatch(question)
            if match is not None:
                value = self._fact(match["x"], names)
                if value is not None:
                    return value
        return UNKNOWN

    # Reading

    def page(self, phrase: str) -> Reading | None:
        """Return the page that a title or a noun phrase refers to."""
        for names, pattern in _noun_patterns():
            match = pattern.fullmatch(phrase)
            if match is not None:
                title = self._fact(match["x"], names)
                if title is not None:
                    return self.lookup(title)
        title = phrase.removeprefix("the ")
        return self.lookup(title) if title[:1].isupper() else None

    def _fact(self, phrase: str, names: tuple[str, ...]) -> str | None:
        """Return the value of the first relation in `names` that the page for `phrase` states, or None."""
        page = self.page(phrase)
        if page is None:
            return None
        return next((page.facts[name] for name in names if name in page.facts), None)

    def lookup(self, title: str) -> Reading | None:
        """Return the parsed article with this title, or None if no query finds it."""
        if title not in self._read and title not in self._absent:
            for query in queries(title):
                self.searches += 1
                self._parse_results(self._search(query))
                if title in self._read:
                    break
            else:
                self._absent.add(title)
        return self._read.get(title)

    def _parse_results(self, results: str) -> None:
        """Parse and cache all articles in the search results, not only the requested one."""
        headings = list(_DOC.finditer(results))
        for index, heading in enumerate(headings):
            end = headings[index + 1].start() - 1 if index + 1 < len(headings) else len(results)
            if heading[1] not in self._read:
                reading = read(heading[1], results[heading.end() : end])
                if reading is not None:
                    self._read[heading[1]] = reading

    # Comparing and counting

    def _compare(self, comparison: Comparison, most: bool, *phrases: str) -> str | None:
        pages = [self.page(phrase) for phrase in phrases]
        ranked = [
            (_key(page.facts[comparison.relation]), page.title)
            for page in pages
            if page is not None and comparison.relation in page.facts
        ]
        if len(ranked) < len(pages):
            return None
        return (max(ranked) if most else min(ranked))[1]

    def _count(self, count: Count, slots: dict[str, str]) -> int | None:
        page = self.page(slots["x"])
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
            number += value is not None and _passes(count.test, value, slots["y"])
        return number


def _passes(test: str, value: str, limit: str) -> bool:
    if test == "is":
        return value == limit
    return _key(value) < _key(limit) if test == "before" else _key(value) > _key(limit)


def _key(value: str) -> tuple[int, ...]:
    """Convert a number or a date into a comparable key."""
    words = value.replace(",", "").split()
    if len(words) == 3:
        return int(words[2]), MONTHS.index(words[1]), int(words[0])
    return (int(words[0]),)


# Words that are common in one kind of article. Adding them to a query for a title ranks the article itself above
# articles that only mention the title.
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
    """Return queries for a title: the title alone, the title with common words of each kind, and its longest word."""
    return [title, f"{title} {title}", *(f"{title} {title} {words}" for words in _COMMON), max(title.split(), key=len)]


def _pattern(sentence: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w)\\\}", r"(?P<\1>.+)", re.escape(sentence)))


@cache
def _question_patterns() -> list[tuple[tuple[str, ...], re.Pattern[str]]]:
    return _patterns({name: relation.questions for name, relation in RELATIONS.items()})


@cache
def _noun_patterns() -> list[tuple[tuple[str, ...], re.Pattern[str]]]:
    return _patterns({name: relation.nouns for name, relation in RELATIONS.items()})


def _patterns(wordings: dict[str, tuple[str, ...]]) -> list[tuple[tuple[str, ...], re.Pattern[str]]]:
    """Return the pattern for each template with the relations that use it, sorted from the longest to the shortest."""
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
    return [(count, _pattern(count.question)) for count in COUNTS]

"""Random choices for the rows in a database: uniform choices, and choices that produce edge cases for a query.

`Draw` is used for the database that the agent queries and for its first copy. `EdgeDraw` is used for the other copies,
on which a query that is almost correct should return a wrong result. It prefers values at and next to the gold query's
constants, the entities that the query mentions, NULLs, repeated values, and a skewed distribution of children, so that
some parents have none, some have one, and some have many.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, timedelta
from functools import lru_cache
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

_NUMBER = re.compile(r"(?<![\w.])\d+(?!\w)")
_STRING = re.compile(r"'((?:[^']|'')*)'")
_MONTH, _DAY = re.compile(r"\d{4}-\d\d"), re.compile(r"\d{4}-\d\d-\d\d")
_FIRST_KEY = 101
_MIN_COLD = 8  # entities that the query does not mention; if there are fewer, none are avoided


class Draw:
    """Independent, evenly distributed choices."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.random = rng.random  # the methods below use only this function, which is several times as fast as randint

    def size(self, count: int) -> int:
        """Return the number of rows for a table that has `count` rows in the original database."""
        return count

    def keys(self, count: int) -> list[int]:
        """Return distinct random integers in random order."""
        return self.rng.sample(range(_FIRST_KEY, _FIRST_KEY + 4 * count), count)

    def integer(self, low: int, high: int, step: int = 1) -> int:
        """Return a random multiple of `step` from `low * step` to `high * step`."""
        return (low + int(self.random() * (high - low + 1))) * step

    def choice(self, values: Sequence[T]) -> T:
        """Return a random value. Pass the same object in repeated calls, because `EdgeDraw` caches by identity."""
        return values[int(self.random() * len(values))]

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """Return the values at `count` distinct random positions."""
        total, random = len(values), self.random
        if count > 6 or total < 3 * count:
            return self.rng.sample(values, count)
        places: list[int] = []  # much faster than `rng.sample` for a few values
        while len(places) < count:
            place = int(random() * total)
            if place not in places:
                places.append(place)
        return [values[place] for place in places]

    def chance(self, probability: float) -> bool:
        """Return True with this probability; used for NULLs and other exceptions."""
        return self.random() < probability

    def day(self, first: str, last: str) -> str:
        """Return a date from `first` to `last`."""
        start = _ordinal(first)
        return _iso(start + int(self.random() * (_ordinal(last) - start + 1)))

    def later(self, start: str, least: int, most: int) -> str:
        """Return a date from `least` to `most` days after `start`."""
        return shift(start, self._between(least, most))

    def _between(self, low: int, high: int) -> int:
        return low + int(self.random() * (high - low + 1))

    def _any(self, values: Sequence[T]) -> T:
        return values[int(self.random() * len(values))]


class EdgeDraw(Draw):
    """Choices that produce edge cases for the `gold` query.

    With `avoid`, no row refers to the entities that the query mentions, so that their groups are empty, and most
    nullable values are NULL, so that some groups have only NULLs. With `flat`, all numbers in a column are equal unless
    the query has constants in the column's range, so that every group's average equals the overall average.
    """

    def __init__(self, rng: Random, gold: str, *, avoid: bool = False, flat: bool = False) -> None:
        super().__init__(rng)
        self.avoid, self.flat = avoid, flat
        self.strings = frozenset(text.replace("''", "'") for text in _STRING.findall(gold))
        numbers = sorted({int(text) for text in _NUMBER.findall(_STRING.sub("", gold))})
        sums = {one + other for one in numbers for other in numbers if one != other}
        self.numbers = tuple(sorted({*numbers, *sums}))
        self.dates = sorted(set(_edge_dates(self.strings, numbers)))
        self.spans = {number for number in numbers if number <= 60}
        # The copies differ in how strongly they prefer edge cases.
        self.focus = rng.choice((0.25, 0.4, 0.6))  # probability of a value that the query mentions
        self.repeat = rng.choice((0.2, 0.4, 0.7))  # probability of a value that occurs often
        self.skew = rng.choice((1.5, 2.5, 4.0))
        self.scale = rng.choice((0.1, 0.2, 0.4))
        self.hot_keys: set[Any] = set()  # keys of the rows that the query mentions or that refer to such rows
        self.recent: list[str] = []
        self._pools: dict[int, tuple[Any, list[Any], list[Any]]] = {}
        self._favorites: dict[tuple[Any, ...], list[Any]] = {}
        self._integers: dict[tuple[int, int, int], tuple[list[int], tuple[int, int, int]]] = {}

    def size(self, count: int) -> int:
        return min(count, max(12, int(count * self.scale)))

    def integer(self, low: int, high: int, step: int = 1) -> int:
        known = self._integers.get((low, high, step))
        if known is None:
            known = self._integers[low, high, step] = self._favorite_integers(low, high, step)
        edges, often = known
        random = self.random
        if self.flat and not edges:
            return often[-1]
        if edges and random() < self.focus:
            return edges[int(random() * len(edges))]
        if random() < self.repeat:
            return often[int(random() * 3)]
        return (low + int(random() * (high - low + 1))) * step

    def _favorite_integers(self, low: int, high: int, step: int) -> tuple[list[int], tuple[int, int, int]]:
        """Return the values next to the query's constants, and three values that occur often."""
        near = {value + change for value in self.numbers for change in (-step, -1, 0, 1, step)}
        edges = [value for value in sorted(near) if low * step <= value <= high * step]
        edges += [value for value in edges if value in self.numbers]  # the constant itself is most important
        # Duplicate minima and maxima expose queries that handle ties incorrectly, such as ORDER BY ... LIMIT 1.
        return edges, (low * step, high * step, self._between(low, high) * step)

    def choice(self, values: Sequence[T]) -> T:
        _, hot, order = self._pools.get(id(values)) or self._pool(values)
        random = self.random
        pool: list[T] = hot if hot and random() < self.focus else order
        return pool[int(len(pool) * random() ** self.skew)]

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        _, hot, order = self._pools.get(id(values)) or self._pool(values)
        if len(order) < count:
            return self.rng.sample(values, count)
        if not hot or count == 0 or self.random() >= self.focus:
            return super().sample(order, count)
        chosen = self.rng.sample(hot, self._between(1, min(len(hot), count)))
        rest = [value for value in values if value not in chosen]
        return chosen + self.rng.sample(rest, count - len(chosen))

    def chance(self, probability: float) -> bool:
        return self.random() < math.pow(probability, 0.2 if self.avoid else 0.5)

    def day(self, first: str, last: str) -> str:
        value = self._edge_day(first, last)
        if not first <= value <= last:
            value = super().day(first, last)
        self.recent.append(value)
        return value

    def _edge_day(self, first: str, last: str) -> str:
        """Return a date at a boundary in the query or near an earlier date; it may be out of range."""
        if self.random() < self.focus:
            key = (first, last)
            edges = self._favorites.get(key)
            if edges is None:
                edges = self._favorites[key] = [value for value in self.dates if first <= value <= last]
            if edges:
                return str(self._any(edges))
        if self.recent and self.random() < self.repeat:
            days = self._any((0, *sorted(self.spans))) + self._any((0, 0, 1))
            return shift(self._any(self.recent[-12:]), days)
        return super().day(first, last)

    def later(self, start: str, least: int, most: int) -> str:
        if least == most:
            self.spans.add(least)
        key = ("later", least, most, len(self.spans))
        near = self._favorites.get(key)
        if near is None:
            spans = [span + change for span in sorted(self.spans) for change in (-1, 0, 0, 1)]
            near = self._favorites[key] = [least, least, *(span for span in spans if least <= span <= most)]
        value = shift(start, self._any(near) if self.random() < self.focus else self._between(least, most))
        self.recent.append(value)
        return value

    def _pool(self, values: Sequence[T]) -> tuple[Sequence[T], list[T], list[T]]:
        """Store and return all values, the values that the query mentions, and most values in random order."""
        hot = [value for value in values if self._is_hot(value)]
        self.hot_keys.update(value[0] for value in hot if isinstance(value, tuple))
        # A fifth of the values occur only if the query mentions them.
        order = self.rng.sample(values, len(values) - len(values) // 5)
        if self.avoid and hot and isinstance(hot[0], tuple):
            cold = [value for value in order if value not in hot]
            order, hot = cold if len(cold) >= _MIN_COLD else order, []
        self._pools[id(values)] = pool = (values, hot, order)  # the reference to `values` keeps the id valid
        return pool

    def _is_hot(self, value: object) -> bool:
        if isinstance(value, tuple):
            return any(cell in self.strings or cell in self.hot_keys or cell in self.numbers for cell in value)
        return value in self.strings or value in self.numbers


def shift(day: str, days: int) -> str:
    """Return the date `days` days after `day`."""
    return _iso(_ordinal(day) + days)


@lru_cache(maxsize=4096)
def _ordinal(day: str) -> int:
    return date.fromisoformat(day).toordinal()


@lru_cache(maxsize=4096)
def _iso(ordinal: int) -> str:
    return date.fromordinal(ordinal).isoformat()


def _edge_dates(strings: frozenset[str], numbers: Sequence[int]) -> list[str]:
    """Return the dates at the boundaries of the years, months and days that a query mentions."""
    years = [*numbers, *(int(text) for text in strings if re.fullmatch(r"\d{4}", text))]
    # the first day, and the day after the last one
    starts = [(date(year, 1, 1), date(year + 1, 1, 1)) for year in years if 1900 <= year <= 2100]
    for text in strings:
        if _DAY.fullmatch(text):
            day = date.fromisoformat(text)
            starts.append((day, day + timedelta(days=1)))
        elif _MONTH.fullmatch(text):
            day = date.fromisoformat(f"{text}-01")
            starts.append((day, (day + timedelta(days=31)).replace(day=1)))
    one = timedelta(days=1)
    return [
        edge.isoformat()
        for start, end in starts
        for edge in (start - one, start, start + (end - start) // 2, end - one, end)
    ]

"""A seed -> a small database of some domain, copies of it with other facts, and a question with its query.

A domain is data and two functions: the names its rows go by (`names`), and the rows (`fill`). A copy has the same names
and everything else drawn anew, keys included: what a question speaks of is there in every copy, and what holds of it
differs. So a query that answers the question is right on all of them, and one that fits a single database by luck is
not.

A template's question and query are filled with the same values. `again` is the same query put another way; the tests
run both on many databases.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random
from typing import Any

from palestra.envs.sql.guard import Image
from palestra.seeding import child_seed

Names = Mapping[str, Sequence[str]]
Tables = Mapping[str, Sequence[tuple[Any, ...]]]

EASY, MEDIUM, HARD = "easy", "medium", "hard"
LEVELS = (EASY, MEDIUM, HARD)


@dataclass(frozen=True, slots=True)
class Template:
    level: str
    ask: str  # ends with what to return
    gold: str
    again: str
    ordered: bool = False  # the order of the rows is asked for

    def fill(self, rng: Random, slots: Mapping[str, Sequence[Any]]) -> Question:
        """Draw a value for every slot."""
        used = sorted({name for name in slots if f"{{{name}}}" in self.ask})
        values = {name: rng.choice(slots[name]) for name in used}
        quoted = {name: _quoted(value) for name, value in values.items()}
        return Question(
            text=self.ask.format(**values),
            gold=_one_line(self.gold.format(**quoted)),
            again=_one_line(self.again.format(**quoted)),
            ordered=self.ordered,
            level=self.level,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    gold: str
    again: str = ""
    ordered: bool = False
    level: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    name: str
    about: str  # a sentence for the prompt
    ddl: tuple[str, ...]
    slots: Mapping[str, Sequence[Any]]  # besides the names
    names: Callable[[Random], Names]
    fill: Callable[[Random, Names], Tables]
    templates: tuple[Template, ...]

    def named(self, seed: int) -> Names:
        return self.names(Random(child_seed(seed, self.name, "names")))

    def build(self, seed: int, copy: int = 0) -> Image:
        """The database of `seed`, or a copy of it with other facts."""
        rows = self.fill(Random(child_seed(seed, self.name, "facts", copy)), self.named(seed))
        connection = sqlite3.connect(":memory:")
        try:
            for statement in self.ddl:
                connection.execute(statement)
            for table, values in rows.items():
                if values:
                    marks = ", ".join("?" * len(values[0]))
                    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)  # noqa: S608  # our names
            connection.commit()
            return Image(connection.serialize())
        finally:
            connection.close()

    def of_level(self, level: str | None) -> tuple[Template, ...]:
        return tuple(template for template in self.templates if level in (None, template.level))


def _quoted(value: Any) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def _one_line(sql: str) -> str:
    return " ".join(sql.split())


# For the domains


def keys(rng: Random, count: int) -> list[int]:
    """Different whole numbers, in no order."""
    return rng.sample(range(101, 101 + 4 * count), count)


def day(rng: Random, first: str = "2021-01-01", last: str = "2024-12-31") -> str:
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    return (begin + timedelta(days=rng.randint(0, (end - begin).days))).isoformat()


def later(rng: Random, start: str, least: int, most: int) -> str:
    """A day that many days after `start`."""
    return (date.fromisoformat(start) + timedelta(days=rng.randint(least, most))).isoformat()

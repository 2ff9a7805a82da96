"""Generate small databases of a domain from a seed, copies with different data, and questions with gold queries.

A domain consists of data and two functions: `names` generates the names used in its rows, and `fill` generates the
rows. A copy has the same names, but all other data, including keys, is different. The entities in a question therefore
exist in every copy. A query that answers the question is correct on all copies, whereas a query that happens to be
correct on one database usually is not.

The question and the queries of a template are filled with the same values. `alternative` is a query equivalent to the
gold query. The tests run both queries on many databases and compare their results.
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
    text: str  # the question; its last sentence lists the columns to return
    gold: str
    alternative: str
    ordered: bool = False  # whether the order of the rows matters

    def fill(self, rng: Random, slots: Mapping[str, Sequence[Any]]) -> Question:
        """Fill the template with a random value for every slot."""
        used = sorted({name for name in slots if f"{{{name}}}" in self.text})
        values = {name: rng.choice(slots[name]) for name in used}
        quoted = {name: _quoted(value) for name, value in values.items()}
        return Question(
            text=self.text.format(**values),
            gold=_one_line(self.gold.format(**quoted)),
            alternative=_one_line(self.alternative.format(**quoted)),
            ordered=self.ordered,
            level=self.level,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    gold: str
    alternative: str = ""
    ordered: bool = False
    level: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    name: str
    about: str  # description for the prompt
    ddl: tuple[str, ...]
    slots: Mapping[str, Sequence[Any]]  # possible values of the slots that are not names
    names: Callable[[Random], Names]
    fill: Callable[[Random, Names], Tables]
    templates: tuple[Template, ...]

    def draw_names(self, seed: int) -> Names:
        return self.names(Random(child_seed(seed, self.name, "names")))

    def build(self, seed: int, copy: int = 0) -> Image:
        """Build the database of `seed`, or a copy with different data if `copy` is not 0."""
        rows = self.fill(Random(child_seed(seed, self.name, "facts", copy)), self.draw_names(seed))
        connection = sqlite3.connect(":memory:")
        try:
            for statement in self.ddl:
                connection.execute(statement)
            for table, values in rows.items():
                if values:
                    marks = ", ".join("?" * len(values[0]))
                    # The table names are constants of this package, so SQL injection is not possible.
                    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)  # noqa: S608
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


# Helpers for the domains


def keys(rng: Random, count: int) -> list[int]:
    """Return distinct random integers in random order."""
    return rng.sample(range(101, 101 + 4 * count), count)


def day(rng: Random, first: str = "2021-01-01", last: str = "2024-12-31") -> str:
    start, end = date.fromisoformat(first), date.fromisoformat(last)
    return (start + timedelta(days=rng.randint(0, (end - start).days))).isoformat()


def later(rng: Random, start: str, least: int, most: int) -> str:
    """Return a random date from `least` to `most` days after `start`."""
    return (date.fromisoformat(start) + timedelta(days=rng.randint(least, most))).isoformat()

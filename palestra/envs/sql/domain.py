"""Generate a domain's small databases from a seed, copies with different data, and questions with gold queries.

A domain consists of data and two functions: `names` generates the names used in its rows, and `fill` generates the
rows. A copy has the same names, but all other data, including keys, is different. The entities in a question therefore
exist in every copy. A query that answers the question is correct on all copies, whereas a query that happens to be
correct on one database usually is not. All copies but the first contain edge cases for the gold query (`EdgeDraw`).

A template's question and queries are filled with the same values. `alternative` is a query equivalent to the
gold query. The tests run both queries on many databases and compare their results.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from palestra.envs.sql.draw import Draw, EdgeDraw
from palestra.envs.sql.guard import Image
from palestra.seeding import child_seed
from palestra.spec import fingerprint, split_of

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
    held_out: bool = False  # whether all questions from this template belong to the test split

    def fill(self, rng: Random, slots: Mapping[str, Sequence[Any]]) -> Question:
        """Fill the template with a random value for every slot."""
        used = sorted({name for name in slots if f"{{{name}}}" in self.text})
        values = {name: rng.choice(slots[name]) for name in used}
        quoted = {name: quote(value) for name, value in values.items()}
        key = (self.text, *values.values())
        return Question(
            text=self.text.format(**values),
            gold=_one_line(self.gold.format(**quoted)),
            alternative=_one_line(self.alternative.format(**quoted)),
            ordered=self.ordered,
            level=self.level,
            key=key,
            split="test" if self.held_out else split_of(fingerprint(key)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    text: str
    gold: str
    alternative: str = ""
    ordered: bool = False
    level: str = ""
    key: tuple[Any, ...] = ()  # questions with the same key are the same task, regardless of the data
    split: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    name: str
    about: str  # description for the prompt
    ddl: tuple[str, ...]
    slots: Mapping[str, Sequence[Any]]  # possible values for each slot, except slots for names
    names: Callable[[Random], Names]
    fill: Callable[[Draw, Names], Tables]
    templates: tuple[Template, ...]

    def draw_names(self, seed: int) -> Names:
        return _names(self.names, child_seed(seed, self.name, "names"))

    def build(self, seed: int, copy: int = 0, gold: str = "") -> Image:
        """Build the database for `seed`, or a copy with different data if `copy` is not 0.

        If `copy` is at least 2, the copy contains edge cases for the `gold` query.
        """
        rng, names = Random(child_seed(seed, self.name, "facts", copy)), self.draw_names(seed)
        if copy < 2:
            return build_image(self.ddl, self.fill(Draw(rng), names))
        return build_image(self.ddl, repeat_rows(rng, self.ddl, self.fill(edge_draw(rng, copy, gold), names)))

    def of_level(self, level: str | None) -> tuple[Template, ...]:
        return tuple(template for template in self.templates if level in (None, template.level))

    def questions(self, rng: Random, level: str | None, seed: int) -> Iterator[Question]:
        """Yield an endless sequence of random questions at a level about the database for `seed`."""
        slots = {**self.slots, **self.draw_names(seed)}
        templates = self.of_level(level)
        while True:
            yield rng.choice(templates).fill(rng, slots)


@lru_cache(maxsize=32)
def _names(function: Callable[[Random], Names], seed: int) -> Names:
    return function(Random(seed))


def edge_draw(rng: Random, copy: int, gold: str) -> EdgeDraw:
    """Return the choices for a copy; the copies have different kinds of edge cases."""
    return EdgeDraw(rng, gold, avoid=copy % 3 == 0, flat=copy % 4 == 0)


def repeat_rows(rng: Random, ddl: Iterable[str], tables: Tables) -> Tables:
    """Repeat some rows with other keys, in tables with an integer key and without unique names."""
    repeated: dict[str, Sequence[tuple[Any, ...]]] = dict(tables)
    for statement, (table, rows) in zip(ddl, tables.items(), strict=True):
        if rows and "INTEGER PRIMARY KEY" in statement and "UNIQUE" not in statement:
            last = max(row[0] for row in rows)
            chosen = rng.choices(rows, k=1 + len(rows) // 6)
            repeated[table] = [*rows, *((last + 1 + number, *row[1:]) for number, row in enumerate(chosen))]
    return repeated


@lru_cache(maxsize=32)
def _empty_image(ddl: tuple[str, ...]) -> bytes:
    connection = sqlite3.connect(":memory:")
    for statement in ddl:
        connection.execute(statement)
    data = connection.serialize()
    connection.close()
    return data


def build_image(ddl: Iterable[str], rows: Tables) -> Image:
    """Create the tables, insert the rows, and return the database."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(_empty_image(tuple(ddl)))
        for table, values in rows.items():
            if values:
                marks = ", ".join("?" * len(values[0]))
                # The table names are constants of this package, so SQL injection is not possible.
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)  # noqa: S608
        connection.commit()
        return Image(connection.serialize())
    finally:
        connection.close()


def quote(value: Any) -> str:
    """Return a value as an SQL literal."""
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def _one_line(sql: str) -> str:
    return " ".join(sql.split())

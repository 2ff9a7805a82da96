"""Generate a schema from a seed: tables, column names in one of several styles, and rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from palestra.envs.sql.domain import Names, Tables
from palestra.envs.sql.domains.people import people, titles
from palestra.envs.sql.draw import Draw
from palestra.envs.sql.random_schema import vocabulary as words
from palestra.envs.sql.random_schema.vocabulary import EVENT, PERSON, PLACE, UNIT, Category, Date, Number

Kind = Category | Number | Date
Namer = Callable[[str], str]

_SIZES = {PLACE: (9, 13), UNIT: (26, 36), EVENT: (90, 130), PERSON: (9, 13)}
_LABELS = {PLACE: ("name", "label"), UNIT: ("title", "name", "code name"), PERSON: ("name", "full name")}
_KEYS = ("{}_id", "id", "{}_no", "{}_key")


@dataclass(frozen=True)
class Column:
    sql: str
    phrase: str
    kind: Kind | None = None  # None if the column is a unique name
    nullable: bool = False
    ends: bool = False  # whether this is the end date of an event

    @property
    def declaration(self) -> str:
        sql_type = "INTEGER" if isinstance(self.kind, Number) else "TEXT"
        unique = " UNIQUE" if self.kind is None else ""
        return f"{self.sql} {sql_type}{'' if self.nullable else ' NOT NULL'}{unique}"


@dataclass(frozen=True)
class Table:
    role: str
    singular: str
    plural: str
    sql: str
    key: str
    columns: tuple[Column, ...]
    size: int
    parent: Table | None = None
    parent_key: str = ""  # column that refers to the parent
    optional: bool = False  # whether rows may have no parent

    @cached_property
    def label(self) -> Column:
        """The column that identifies a row in an answer: its unique name, or its key."""
        names = [column for column in self.columns if column.kind is None]
        return names[0] if names else Column(self.key, self.key)

    def _of(self, kind: type) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if isinstance(column.kind, kind) and not column.ends)

    @cached_property
    def categories(self) -> tuple[Column, ...]:
        return self._of(Category)

    @cached_property
    def numbers(self) -> tuple[Column, ...]:
        return self._of(Number)

    @cached_property
    def dates(self) -> tuple[Column, ...]:
        return self._of(Date)

    @cached_property
    def end(self) -> Column:
        """The end date of an event."""
        return next(column for column in self.columns if column.ends)

    @property
    def ddl(self) -> str:
        cells = [f"{self.key} INTEGER PRIMARY KEY"]
        if self.parent is not None:
            null = "" if self.optional else " NOT NULL"
            cells.append(f"{self.parent_key} INTEGER{null} REFERENCES {self.parent.sql}")
        cells += [column.declaration for column in self.columns]
        return f"CREATE TABLE {self.sql} ({', '.join(cells)})"


@dataclass(frozen=True)
class Link:
    """A table that assigns persons to units."""

    sql: str
    unit: Table
    person: Table
    unit_key: str
    person_key: str
    number: Column

    @property
    def ddl(self) -> str:
        keys = [
            f"{self.unit_key} INTEGER NOT NULL REFERENCES {self.unit.sql}",
            f"{self.person_key} INTEGER NOT NULL REFERENCES {self.person.sql}",
        ]
        cells = [*keys, self.number.declaration, f"PRIMARY KEY ({self.unit_key}, {self.person_key})"]
        return f"CREATE TABLE {self.sql} ({', '.join(cells)})"


@dataclass(frozen=True)
class Schema:
    place: Table
    unit: Table
    event: Table
    person: Table
    extra: Table | None  # further events, which belong to places, units or persons
    link: Link
    labels: Names  # unique row names, by role
    split: str

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        every = (self.place, self.unit, self.event, self.person, self.extra)
        return tuple(table for table in every if table is not None)

    @cached_property
    def pairs(self) -> tuple[tuple[Table, Table], ...]:
        """The tables that refer to a parent, with their parents."""
        return tuple((table, table.parent) for table in self.tables if table.parent is not None)

    @cached_property
    def ddl(self) -> tuple[str, ...]:
        return (*(table.ddl for table in self.tables), self.link.ddl)

    @cached_property
    def about(self) -> str:
        place, unit, event, person = self.tables[:4]
        many = "at most one" if unit.optional else "exactly one"
        parts = [
            f"A database about {place.plural} and their {unit.plural}.",
            f"Each {unit.singular} belongs to {many} {place.singular}.",
            f"Each {event.singular} belongs to exactly one {unit.singular}.",
            f"The {self.link.sql} table states which {person.plural} are assigned to which {unit.plural}.",
        ]
        if self.extra is not None and self.extra.parent is not None:
            parts.append(f"Each {self.extra.singular} belongs to exactly one {self.extra.parent.singular}.")
        parts += [
            f"The {column.phrase} of {an(table.singular)} is NULL "
            + ("while it has not ended." if column.ends else "if it is not recorded.")
            for table in self.tables
            for column in table.columns
            if column.nullable
        ]
        return " ".join(parts)

    def fill(self, draw: Draw) -> Tables:
        rows: dict[str, list[tuple[Any, ...]]] = {}
        for table in self.tables:
            labels: Sequence[str] = self.labels.get(table.role, ())
            parents = None
            if table.parent is not None:
                every = rows[table.parent.sql]
                parents = every[: len(every) - len(every) // 8]  # the other parents have no children
            count = len(labels) if labels else draw.size(table.size)
            rows[table.sql] = [
                _row(draw, table, key, parents, labels[i] if labels else "")
                for i, key in enumerate(sorted(draw.keys(count)))
            ]
        units, persons = rows[self.unit.sql], rows[self.person.sql]
        assigned = persons[: len(persons) - 1]
        rows[self.link.sql] = [
            (unit[0], person[0], _value(draw, self.link.number, ""))
            for unit in units[: len(units) - 3]
            for person in draw.sample(assigned, draw.integer(0, 4))
        ]
        return rows


def _row(draw: Draw, table: Table, key: int, parents: Sequence[tuple[Any, ...]] | None, label: str) -> tuple[Any, ...]:
    cells: list[Any] = [key]
    if parents is not None:
        cells.append(None if table.optional and draw.chance(0.08) else draw.choice(parents)[0])
    started = ""
    for column in table.columns:
        cells.append(_value(draw, column, label, started))
        if isinstance(column.kind, Date):
            started = cells[-1] or started
    return tuple(cells)


def _value(draw: Draw, column: Column, label: str, started: str = "") -> Any:
    kind = column.kind
    if kind is None:
        return label
    if column.nullable and draw.chance(0.1):
        return None
    if isinstance(kind, Category):
        return draw.choice(kind.values)
    if isinstance(kind, Number):
        return draw.integer(kind.low, kind.high, kind.step)
    return draw.later(started, 0, 40) if column.ends else draw.day(kind.first, kind.last)


def make_schema(rng: Random, split: str | None) -> Schema:
    """Generate a schema with a theme from the split."""
    theme = rng.choice(words.themes(split))
    in_split = words.split_of_theme(words.THEMES.index(theme))
    column_style: Namer = rng.choice((_snake, _snake, _camel))
    table_style: Callable[[str], str] = rng.choice((_plural, _plural, _same, _capital))
    key_style = rng.choice(_KEYS)
    nouns = {
        PLACE: rng.choice(theme.places),
        UNIT: rng.choice(theme.units),
        EVENT: rng.choice(theme.events),
        PERSON: rng.choice(theme.persons),
    }

    def table(role: str, parent: Table | None = None, optional: bool = False) -> Table:
        noun = nouns[role]
        return Table(
            role=role,
            singular=noun,
            plural=words.plural(noun),
            sql=table_style(noun),
            key=column_style(key_style.format(noun)),
            columns=_columns(rng, role, column_style),
            size=rng.randint(*_SIZES[role]),
            parent=parent,
            parent_key=column_style(f"{parent.singular}_id") if parent is not None else "",
            optional=optional,
        )

    place = table(PLACE)
    unit = table(UNIT, place, rng.random() < 0.3)
    event, person = table(EVENT, unit), table(PERSON)
    extra = None
    if rng.random() < 0.5:
        nouns[EVENT] = rng.choice([noun for noun in theme.events if noun != event.singular])
        extra = table(EVENT, rng.choice((place, unit, person)))
    kind = rng.choice(words.LINK_NUMBERS)
    link = Link(
        sql=table_style("assignment"),
        unit=unit,
        person=person,
        unit_key=column_style(f"{unit.singular}_id"),
        person_key=column_style(f"{person.singular}_id"),
        number=Column(column_style(kind.phrase), kind.phrase, kind),
    )
    every = titles(rng, place.size + unit.size)
    labels = {PLACE: every[: place.size], UNIT: every[place.size :], PERSON: people(rng, person.size)}
    return Schema(place, unit, event, person, extra, link, labels, in_split)


def _columns(rng: Random, role: str, style: Namer) -> tuple[Column, ...]:
    """Return one or two categories, two numbers (one is nullable for an event) and one date, in random order."""
    kinds: list[Kind] = [*rng.sample(words.CATEGORIES[role], rng.randint(1, 2))]
    kinds += [*rng.sample(words.NUMBERS[role], 2), rng.choice(words.DATES[role])]
    rng.shuffle(kinds)
    numbers = [kind for kind in kinds if isinstance(kind, Number)]
    nullable = numbers[0] if role == EVENT or rng.random() < 0.4 else None
    columns = [Column(style(kind.phrase), kind.phrase, kind, nullable=kind is nullable) for kind in kinds]
    if role == EVENT:
        date = next(kind for kind in kinds if isinstance(kind, Date))
        columns.append(Column(style(words.END_DATE), words.END_DATE, date, nullable=True, ends=True))
        return tuple(columns)
    label = rng.choice(_LABELS[role])
    return (Column(style(label), label), *columns)


def an(noun: str) -> str:
    """Return the noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeio' or noun.startswith('um') else 'a'} {noun}"


def _snake(phrase: str) -> str:
    return phrase.replace(" ", "_")


def _camel(phrase: str) -> str:
    first, *rest = phrase.replace("_", " ").split()
    return first + "".join(word.capitalize() for word in rest)


def _plural(noun: str) -> str:
    return words.plural(noun)


def _same(noun: str) -> str:
    return noun


def _capital(noun: str) -> str:
    return words.plural(noun).capitalize()

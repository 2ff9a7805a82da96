"""Conditions on rows in a table, each as English text, as SQL, and as different SQL with the same meaning."""

from __future__ import annotations

import re
from random import Random
from typing import NamedTuple

from palestra.envs.sql.draw import Draw, shift
from palestra.envs.sql.random_schema.schema import Column, Schema, Table, an
from palestra.envs.sql.random_schema.vocabulary import Category, Date, Number

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_COMPARISONS = (
    ("more than", ">", "NOT {0} <= {1}"),
    ("at least", ">=", "{0} + 1 > {1}"),
    ("less than", "<", "NOT {0} >= {1}"),
    ("at most", "<=", "{0} - 1 < {1}"),
)


class Filter(NamedTuple):
    text: str = ""  # relative clause, for example "whose price is at least 50"
    sql: str = ""
    alternative: str = ""

    def where(self, *, alternative: bool = False) -> str:
        """Return a WHERE clause, or nothing if there is no condition."""
        sql = self.alternative if alternative else self.sql
        return f" WHERE {sql}" if sql else ""

    def also(self, *, alternative: bool = False) -> str:
        """Return the condition as a continuation of other conditions."""
        sql = self.alternative if alternative else self.sql
        return f" AND {sql}" if sql else ""

    def renamed(self, old: str, new: str) -> str:
        """Return the SQL with another alias for the table."""
        return re.sub(rf"\b{old}\.", f"{new}.", self.sql)

    def after(self, noun: str) -> str:
        """Return the noun with the relative clause."""
        return f"{noun} {self.text}" if self.text else noun


def make_filter(
    rng: Random, table: Table, alias: str, most: int = 2, *, least: int = 0, exclude: Column | None = None
) -> Filter:
    """Return a conjunction of up to `most` conditions on different columns of a table."""
    columns = [column for column in table.columns if column.kind is not None and column is not exclude]
    count = rng.randint(least, most)
    return conjunction([column_filter(rng, column, alias) for column in rng.sample(columns, min(count, len(columns)))])


def conjunction(filters: list[Filter]) -> Filter:
    return Filter(
        " and ".join(one.text for one in filters),
        " AND ".join(one.sql for one in filters),
        " AND ".join(one.alternative for one in reversed(filters)),
    )


def column_filter(rng: Random, column: Column, alias: str) -> Filter:
    name, phrase, kind = f"{alias}.{column.sql}", column.phrase, column.kind
    if column.nullable and rng.random() < 0.3:
        known = rng.random() < 0.5
        word = "recorded" if not column.ends else "known"
        if known:
            return Filter(f"whose {phrase} is {word}", f"{name} IS NOT NULL", f"NOT {name} IS NULL")
        return Filter(f"whose {phrase} is not {word}", f"{name} IS NULL", f"COALESCE({name}, 'none') = 'none'")
    if isinstance(kind, Category):
        return _category_filter(rng, name, phrase, kind)
    if isinstance(kind, Number):
        return _number_filter(rng, name, phrase, kind)
    if isinstance(kind, Date):
        return _date_filter(rng, name, phrase, kind)
    raise TypeError(f"{column.sql} has no conditions")


def _category_filter(rng: Random, name: str, phrase: str, kind: Category) -> Filter:
    one, other = rng.sample(kind.values, 2)
    form = rng.random()
    if form < 0.6:
        return Filter(f"whose {phrase} is {one}", f"{name} = '{one}'", f"{name} IN ('{one}')")
    if form < 0.8:
        return Filter(f"whose {phrase} is not {one}", f"{name} <> '{one}'", f"NOT {name} = '{one}'")
    either = f"({name} = '{one}' OR {name} = '{other}')"
    return Filter(f"whose {phrase} is {one} or {other}", f"{name} IN ('{one}', '{other}')", either)


def _number_filter(rng: Random, name: str, phrase: str, kind: Number) -> Filter:
    span = kind.high - kind.low
    low = (kind.low + rng.randint(span // 5, 4 * span // 5)) * kind.step
    if rng.random() < 0.2:
        high = low + rng.randint(1, max(1, span // 3)) * kind.step
        return Filter(
            f"whose {phrase} is between {low} and {high} (inclusive)",
            f"{name} BETWEEN {low} AND {high}",
            f"{name} >= {low} AND {name} <= {high}",
        )
    words, operator, other = rng.choice(_COMPARISONS)
    return Filter(f"whose {phrase} is {words} {low}", f"{name} {operator} {low}", other.format(name, low))


def _date_filter(rng: Random, name: str, phrase: str, kind: Date) -> Filter:
    day = Draw(rng).day(kind.first, kind.last)
    form = rng.random()
    if form < 0.4:
        year = day[:4]
        between = f"{name} BETWEEN '{year}-01-01' AND '{year}-12-31'"
        return Filter(f"whose {phrase} is in {year}", f"strftime('%Y', {name}) = '{year}'", between)
    if form < 0.55:
        month = f"{_MONTHS[int(day[5:7]) - 1]} {day[:4]}"
        like = f"{name} LIKE '{day[:7]}-%'"
        return Filter(f"whose {phrase} is in {month}", f"strftime('%Y-%m', {name}) = '{day[:7]}'", like)
    if form < 0.8:
        return Filter(f"whose {phrase} is before {day}", f"{name} < '{day}'", f"NOT {name} >= '{day}'")
    before = shift(day, -1)
    return Filter(f"whose {phrase} is on or after {day}", f"{name} >= '{day}'", f"{name} > '{before}'")


def parent_filter(rng: Random, table: Table, parent: Table, alias: str) -> Filter:
    """Return a condition on a row's parent."""
    inner = make_filter(rng, parent, "p", 1, least=1)
    key = f"{alias}.{table.parent_key}"
    rows = f"FROM {parent.sql} p WHERE"
    return Filter(
        f"that belong to {an(inner.after(parent.singular))}",
        f"{key} IN (SELECT p.{parent.key} {rows} {inner.sql})",
        f"EXISTS (SELECT 1 {rows} p.{parent.key} = {key} AND {inner.alternative})",
    )


def link_filter(rng: Random, schema: Schema, alias: str) -> Filter:
    """Return a condition on the persons that are assigned to a unit."""
    link = schema.link
    inner = make_filter(rng, link.person, "q", 1, least=1)
    key = f"{alias}.{schema.unit.key}"
    rows = f"FROM {link.sql} k JOIN {link.person.sql} q ON q.{link.person.key} = k.{link.person_key} WHERE"
    return Filter(
        f"to which at least one {inner.after(link.person.singular)} is assigned",
        f"EXISTS (SELECT 1 {rows} k.{link.unit_key} = {key} AND {inner.sql})",
        f"{key} IN (SELECT k.{link.unit_key} {rows} {inner.alternative})",
    )


def any_filter(rng: Random, schema: Schema, table: Table, alias: str, most: int = 2) -> Filter:
    """Return a conjunction that may also contain conditions on related tables."""
    filters = [make_filter(rng, table, alias, most)]
    if table.parent is not None and rng.random() < 0.3:
        filters.append(parent_filter(rng, table, table.parent, alias))
    elif table is schema.unit and rng.random() < 0.3:
        filters.append(link_filter(rng, schema, alias))
    return conjunction([one for one in filters if one.sql])

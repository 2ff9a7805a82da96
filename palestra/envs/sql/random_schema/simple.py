"""Forms for easy and medium questions: one table, or a table and its parent.

A form composes a question, its gold query and an equivalent query from a random table and random conditions.
"""

# The names in the queries are constants of this package, so SQL injection is not possible.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from palestra.envs.sql.random_schema.filters import make_filter
from palestra.envs.sql.random_schema.pairs import pair
from palestra.envs.sql.random_schema.schema import Column, Schema, Table, an

AGGREGATES = {"average": "AVG", "total": "SUM", "lowest": "MIN", "highest": "MAX"}
AVERAGE = "SUM({0}) * 1.0 / COUNT({0})"  # equivalent to AVG


class Form(NamedTuple):
    text: str
    gold: str
    alternative: str
    ordered: bool = False


Ask = Callable[[Random, Schema], Form]


def number_of(rng: Random, table: Table) -> Column:
    """Return a numeric column that is never NULL."""
    return rng.choice([column for column in table.numbers if not column.nullable])


def aggregate_of(rng: Random, column: Column) -> tuple[str, str]:
    """Return the name and SQL function of an aggregate that makes sense for a numeric column."""
    words = [word for word in AGGREGATES if not (word == "total" and is_year(column))]
    word = rng.choice(words)
    return word, AGGREGATES[word]


def is_year(column: Column) -> bool:
    return column.phrase.endswith(" year")


def returned(table: Table, column: Column) -> str:
    """Return the sentence with which a question requests two columns."""
    return f"Return the {table.label.phrase} and the {column.phrase}"


def _list(rng: Random, schema: Schema) -> Form:
    table = rng.choice(schema.tables)
    column = rng.choice([column for column in table.columns if column.kind is not None])
    condition = make_filter(rng, table, "a", least=1)
    head = f"SELECT a.{table.label.sql}, a.{column.sql} FROM {table.sql} a"
    return Form(
        f"List the {condition.after(table.plural)}. {returned(table, column)}.",
        head + condition.where(),
        head + condition.where(alternative=True),
    )


def _count(rng: Random, schema: Schema) -> Form:
    table = rng.choice(schema.tables)
    condition = make_filter(rng, table, "a", least=1)
    return Form(
        f"How many {condition.after(table.plural)} are there? Return one number.",
        f"SELECT COUNT(*) FROM {table.sql} a{condition.where()}",
        f"SELECT COUNT(CASE WHEN {condition.alternative} THEN 1 END) FROM {table.sql} a",
    )


def _aggregate(rng: Random, schema: Schema) -> Form:
    table = rng.choice(schema.tables)
    column = rng.choice(table.numbers)
    word, function = aggregate_of(rng, column)
    condition = make_filter(rng, table, "a", exclude=column)
    name = f"a.{column.sql}"
    gold, other = f"{function}({name})", f"{function}({name})"
    empty = "or NULL if there are none"
    if function == "SUM":
        gold, other, empty = f"COALESCE(SUM({name}), 0)", f"TOTAL({name})", "or 0 if there are none"
    elif function == "AVG":
        other = AVERAGE.format(name)
    ignore = f", ignoring those whose {column.phrase} is not recorded" if column.nullable else ""
    return Form(
        f"What is the {word} {column.phrase} of the {condition.after(table.plural)}{ignore}? Return one number, "
        f"{empty}.",
        f"SELECT {gold} FROM {table.sql} a{condition.where()}",
        f"SELECT {other} FROM {table.sql} a{condition.where(alternative=True)}",
    )


def _distinct(rng: Random, schema: Schema) -> Form:
    table = rng.choice(schema.tables)
    column = rng.choice(table.categories)
    condition = make_filter(rng, table, "a", least=1, exclude=column)
    return Form(
        f"Which values does the {column.phrase} of the {condition.after(table.plural)} have? Return each value once.",
        f"SELECT DISTINCT a.{column.sql} FROM {table.sql} a{condition.where()}",
        f"SELECT a.{column.sql} FROM {table.sql} a{condition.where(alternative=True)} GROUP BY a.{column.sql}",
    )


def _group(rng: Random, schema: Schema) -> Form:
    table = rng.choice(schema.tables)
    key = rng.choice(table.categories)
    condition = make_filter(rng, table, "a", exclude=key)
    if rng.random() < 0.4:
        question, gold, other, result = (
            f"how many {condition.after(table.plural)} are there",
            "COUNT(*)",
            "SUM(1)",
            "number",
        )
    else:
        column = number_of(rng, table)
        word, function = aggregate_of(rng, column)
        question = f"what is the {word} {column.phrase} of the {condition.after(table.plural)}"
        gold = f"{function}(a.{column.sql})"
        other = AVERAGE.format(f"a.{column.sql}") if function == "AVG" else gold
        result = f"{word} {column.phrase}"
    rows = f"FROM {table.sql} a{condition.where()}"
    other_rows = f"FROM {table.sql} a{condition.where(alternative=True)}"
    return Form(
        f"For each {key.phrase}, {question}? Omit each {key.phrase} without such {table.plural}. Return the "
        f"{key.phrase} and the {result}.",
        f"SELECT a.{key.sql}, {gold} {rows} GROUP BY a.{key.sql}",
        f"SELECT g, v FROM (SELECT a.{key.sql} AS g, {other} AS v {other_rows} GROUP BY 1)",
    )


def _top(rng: Random, schema: Schema) -> Form:
    table = rng.choice(schema.tables)
    column = number_of(rng, table)
    condition = make_filter(rng, table, "a", exclude=column)
    count, high = rng.randint(2, 5), rng.random() < 0.5
    label, name = f"a.{table.label.sql}", f"a.{column.sql}"
    head = f"SELECT {label}, {name} FROM {table.sql} a"
    order = "descending" if high else "ascending"
    return Form(
        f"Among the {condition.after(table.plural)}, which {count} have the {'highest' if high else 'lowest'} "
        f"{column.phrase}? {returned(table, column)}, sorted by {column.phrase} in {order} order and then by "
        f"{table.label.phrase}. In case of a tie, the rows that come first in this order count. If there are fewer "
        f"than {count}, return all.",
        f"{head}{condition.where()} ORDER BY {name}{' DESC' if high else ''}, {label} LIMIT {count}",
        f"{head}{condition.where(alternative=True)} ORDER BY {'-' if high else ''}{name}, {label} ASC LIMIT {count}",
        ordered=True,
    )


def _sorted(rng: Random, schema: Schema) -> Form:
    table = rng.choice(schema.tables)
    column = rng.choice([*table.dates, number_of(rng, table)])
    condition = make_filter(rng, table, "a", least=1)
    label = f"a.{table.label.sql}"
    down = rng.random() < 0.5
    head = f"SELECT {label}, a.{column.sql} FROM {table.sql} a"
    order = f" ORDER BY a.{column.sql}{' DESC' if down else ''}, {label}"
    return Form(
        f"List the {condition.after(table.plural)}. {returned(table, column)}, sorted by {column.phrase} in "
        f"{'descending' if down else 'ascending'} order and then by {table.label.phrase}.",
        f"{head}{condition.where()}{order}",
        f"SELECT * FROM ({head}{condition.where(alternative=True)}) AS a{order}",
        ordered=True,
    )


def _of_named_parent(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent = tables.child, tables.parent
    name = rng.choice(schema.labels[parent.role]).replace("'", "''")
    condition = make_filter(rng, child, "y")
    own = f"{tables.label} = '{name}'"
    keys = f"(SELECT x.{parent.key} FROM {parent.sql} x WHERE {own})"
    return Form(
        f"How many {condition.after(child.plural)} belong to the {parent.singular} with the {parent.label.phrase} "
        f"{name.replace(chr(39) * 2, chr(39))}? Return one number.",
        f"SELECT COUNT(*) FROM {tables.rows_with_parent} WHERE {own}{condition.also()}",
        f"SELECT COUNT(*) FROM {child.sql} y WHERE {tables.key} IN {keys}{condition.also(alternative=True)}",
    )


def _with_parent(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent = tables.child, tables.parent
    condition, other = make_filter(rng, child, "y"), make_filter(rng, parent, "x", 1, least=1)
    both = f"{other.alternative}{condition.also(alternative=True)}"
    names = f"y.{child.label.sql}, {tables.label}"
    clause = f"{condition.text} and that belong" if condition.text else "that belong"
    return Form(
        f"List the {child.plural} {clause} to {an(other.after(parent.singular))}. Return the {child.label.phrase} of "
        f"the {child.singular} and the {parent.label.phrase} of the {parent.singular}.",
        f"SELECT {names} FROM {tables.rows_with_parent} WHERE {other.sql}{condition.also()}",
        f"SELECT {names} FROM {parent.sql} x, {child.sql} y WHERE {tables.match} AND {both}",
    )


def _left_count(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent = tables.child, tables.parent
    condition, other = make_filter(rng, child, "y"), make_filter(rng, parent, "x", 1)
    return Form(
        f"For each {other.after(parent.singular)}, how many {condition.after(child.plural)} belong to the "
        f"{parent.singular}? Include {parent.plural} without such {child.plural}, with the number 0. Return the "
        f"{parent.label.phrase} and the number.",
        f"SELECT {tables.label}, COUNT(y.{child.key}) FROM {parent.sql} x LEFT JOIN {child.sql} y ON "
        f"{tables.match}{condition.also()}{other.where()} GROUP BY x.{parent.key}",
        f"SELECT {tables.label}, {tables.count(condition)} FROM {parent.sql} x{other.where(alternative=True)}",
    )


def _per_parent(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent = tables.child, tables.parent
    column = number_of(rng, child)
    condition = make_filter(rng, child, "y", exclude=column)
    word, function = aggregate_of(rng, column)
    name = f"y.{column.sql}"
    return Form(
        f"For each {parent.singular}, what is the {word} {column.phrase} of the {parent.singular}'s "
        f"{condition.after(child.plural)}? Omit {parent.plural} without such {child.plural}. Return the "
        f"{parent.label.phrase} and the {word} {column.phrase}.",
        tables.per_parent(f"{function}({name})", condition),
        tables.from_groups(AVERAGE.format(name) if function == "AVG" else f"{function}({name})", condition),
    )


def _without_children(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent = tables.child, tables.parent
    condition, other = make_filter(rng, child, "y"), make_filter(rng, parent, "x", 1)
    text = f"Which {parent.plural} have no {condition.after(child.singular)}?"
    if other.text:
        text = f"Which of the {other.after(parent.plural)} have no {condition.after(child.singular)}?"
    return Form(
        f"{text} Return the {parent.label.phrase}.",
        f"SELECT {tables.label} FROM {parent.sql} x WHERE NOT {tables.exists(condition.also())}{other.also()}",
        f"SELECT {tables.label} FROM {parent.sql} x LEFT JOIN {child.sql} y ON "
        f"{tables.match}{condition.also(alternative=True)} WHERE y.{child.key} IS NULL{other.also(alternative=True)}",
    )


def _having(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent = tables.child, tables.parent
    condition = make_filter(rng, child, "y", 1)
    count = rng.randint(2, 4)
    return Form(
        f"Which {parent.plural} have at least {count} {condition.after(child.plural)}? Return the "
        f"{parent.label.phrase} and the number of such {child.plural}.",
        f"{tables.per_parent('COUNT(*)', condition)} HAVING COUNT(*) >= {count}",
        f"SELECT n, c FROM (SELECT {tables.label} AS n, {tables.count(condition)} AS c FROM {parent.sql} x) WHERE c > "
        f"{count - 1}",
    )


def _distinct_parents(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent = tables.child, tables.parent
    column = rng.choice(parent.categories)
    condition = make_filter(rng, child, "y", least=1)
    name = f"x.{column.sql}"
    return Form(
        f"Which values does the {column.phrase} of the {parent.plural} that have at least one "
        f"{condition.after(child.singular)} have? Return each value once.",
        f"SELECT DISTINCT {name} FROM {tables.joined}{condition.where()}",
        f"SELECT {name} FROM {parent.sql} x WHERE x.{parent.key} IN (SELECT {tables.key} FROM {child.sql} "
        f"y{condition.where(alternative=True)}) GROUP BY {name}",
    )


def _parent_category(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent = tables.child, tables.parent
    column = rng.choice(parent.categories)
    condition = make_filter(rng, child, "y", 1)
    name = f"x.{column.sql}"
    rows = f"FROM {tables.rows_with_parent}{condition.where(alternative=True)}"
    return Form(
        f"For each {column.phrase} of the {parent.plural}, how many {condition.after(child.plural)} belong to "
        f"{parent.plural} with this {column.phrase}? Omit each {column.phrase} without such {child.plural}. Return the "
        f"{column.phrase} and the number.",
        f"SELECT {name}, COUNT(*) FROM {tables.joined}{condition.where()} GROUP BY {name}",
        f"SELECT DISTINCT {name}, COUNT(*) OVER (PARTITION BY {name}) {rows}",
    )


EASY_FORMS: tuple[Ask, ...] = (_list, _count, _aggregate, _distinct, _group, _top, _sorted)
MEDIUM_FORMS: tuple[Ask, ...] = (
    _of_named_parent,
    _with_parent,
    _left_count,
    _per_parent,
    _without_children,
    _having,
    _distinct_parents,
    _parent_category,
)

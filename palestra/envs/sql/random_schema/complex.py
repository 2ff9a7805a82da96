"""Forms for hard questions: several tables, subqueries, ties, set operations, dates and divisions."""

# The names in the queries are constants of this package, so SQL injection is not possible.
# ruff: noqa: S608

from __future__ import annotations

from random import Random

from palestra.envs.sql.random_schema.filters import Filter, any_filter, column_filter, make_filter
from palestra.envs.sql.random_schema.pairs import Pair, best, pair
from palestra.envs.sql.random_schema.schema import Schema
from palestra.envs.sql.random_schema.simple import AVERAGE, Ask, Form, is_year, number_of
from palestra.envs.sql.random_schema.vocabulary import EVENT


def _above_average(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent = tables.child, tables.parent
    column = number_of(rng, child)
    condition = make_filter(rng, child, "y", 1, exclude=column)
    name = f"y.{column.sql}"
    overall = f"SELECT AVG({name}) FROM {child.sql} y{condition.where()}"
    rows = f"SELECT * FROM {child.sql} y{condition.where(alternative=True)}"
    return Form(
        f"For which {parent.plural} is the average {column.phrase} of their {condition.after(child.plural)} higher "
        f"than the average {column.phrase} of all {condition.after(child.plural)}? Return the {parent.label.phrase} "
        f"and the average of the {parent.singular}.",
        f"{tables.per_parent(f'AVG({name})', condition)} HAVING AVG({name}) > ({overall})",
        f"WITH s AS ({rows}), m AS (SELECT {tables.key} AS k, {AVERAGE.format(name)} AS v FROM s y GROUP BY 1) "
        f"SELECT {tables.label}, v FROM m JOIN {parent.sql} x ON x.{parent.key} = k WHERE v > (SELECT AVG({name}) FROM "
        "s y)",
    )


def _most_children(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent, key, label = tables.child, tables.parent, tables.key, tables.label
    condition = any_filter(rng, schema, child, "y", 1)
    present = f"{key} IS NOT NULL AND " if child.optional else ""
    where = f" WHERE {present}{condition.sql or '1'}" if present else condition.where()
    count = f"COUNT(y.{child.key})"
    rank = f"RANK() OVER (ORDER BY {count} DESC)"
    return Form(
        f"Which {parent.singular} has the most {condition.after(child.plural)}? In case of a tie, return all such "
        f"{parent.plural}. Return the {parent.label.phrase} and the number.",
        f"WITH c AS (SELECT {key} AS k, COUNT(*) AS n FROM {child.sql} y{where} GROUP BY {key}) SELECT {label}, n FROM "
        f"c JOIN {parent.sql} x ON x.{parent.key} = k WHERE n = (SELECT MAX(n) FROM c)",
        f"SELECT l, n FROM (SELECT {label} AS l, {count} AS n, {rank} AS place FROM "
        f"{tables.joined}{condition.also(alternative=True)} GROUP BY x.{parent.key}) WHERE place = 1",
    )


def _best_of_group(rng: Random, schema: Schema) -> Form:
    table = rng.choice(schema.tables)
    group, column = rng.choice(table.categories), number_of(rng, table)
    condition = make_filter(rng, table, "a", 1, exclude=column)
    high = rng.random() < 0.6
    label, name, key = f"a.{table.label.sql}", f"a.{column.sql}", f"a.{group.sql}"
    is_best, rank = best(table, "a", group.sql, column, condition, high=high)
    return Form(
        f"For each {group.phrase}, which of the {condition.after(table.plural)} has the "
        f"{'highest' if high else 'lowest'} {column.phrase}? In case of a tie, return all of them. Omit each "
        f"{group.phrase} without such {table.plural}. Return the "
        f"{group.phrase}, the {table.label.phrase} and the {column.phrase}.",
        f"SELECT {key}, {label}, {name} FROM {table.sql} a WHERE {is_best}",
        f"SELECT g, l, v FROM (SELECT {key} AS g, {label} AS l, {name} AS v, {rank} AS place FROM {table.sql} "
        f"a{condition.where(alternative=True)}) WHERE place = 1",
    )


def _both_or_but_not(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent, label = tables.child, tables.parent, tables.label
    column = rng.choice([*child.categories, *child.dates])
    one = two = column_filter(rng, column, "y")
    while two == one:
        two = column_filter(rng, column, "y")
    both = rng.random() < 0.5
    word, operation = ("and also at least one", "INTERSECT") if both else ("but no", "EXCEPT")
    rows = f"SELECT {label} FROM {tables.joined} WHERE"
    negation = "" if both else "NOT "
    return Form(
        f"Which {parent.plural} have at least one {one.after(child.singular)} {word} {two.after(child.singular)}? "
        f"Return the {parent.label.phrase}, each once.",
        f"{rows} {one.sql} {operation} {rows} {two.sql}",
        f"SELECT {label} FROM {parent.sql} x WHERE {tables.exists(one.also(alternative=True))} AND "
        f"{negation}{tables.exists(two.also(alternative=True))}",
    )


def _many_links(rng: Random, schema: Schema) -> Form:
    link, unit, person = schema.link, schema.unit, schema.person
    condition, other = make_filter(rng, person, "q", 1), make_filter(rng, unit, "a", 1)
    count = rng.randint(2, 3)
    join = f"{link.sql} k ON k.{link.unit_key} = a.{unit.key}"
    persons = f"SELECT q.{person.key} FROM {person.sql} q{condition.where(alternative=True)}"
    subject = f"of the {other.after(unit.plural)}" if other.text else unit.plural
    return Form(
        f"Which {subject} have at least {count} {condition.after(person.plural)} assigned to them? Return the "
        f"{unit.label.phrase} and the number of such {person.plural}.",
        f"SELECT a.{unit.label.sql}, COUNT(*) FROM {unit.sql} a JOIN {join} JOIN {person.sql} q ON q.{person.key} = "
        f"k.{link.person_key}{_both(other.sql, condition.sql)} GROUP BY a.{unit.key} HAVING COUNT(*) >= {count}",
        f"SELECT a.{unit.label.sql}, COUNT(*) FROM {unit.sql} a, {link.sql} k WHERE k.{link.unit_key} = a.{unit.key} "
        f"AND k.{link.person_key} IN ({persons}){other.also(alternative=True)} GROUP BY 1 HAVING COUNT(*) > "
        f"{count - 1}",
    )


def _both(one: str, other: str) -> str:
    conditions = [sql for sql in (one, other) if sql]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _all_links(rng: Random, schema: Schema) -> Form:
    """Ask for the units to which every person with a property is assigned (relational division)."""
    link, unit, person = schema.link, schema.unit, schema.person
    column = rng.choice([*person.numbers, *person.dates])
    condition = column_filter(rng, column, "q")
    persons = f"SELECT 1 FROM {person.sql} q WHERE {condition.sql}"
    assigned = (
        f"SELECT 1 FROM {link.sql} k WHERE k.{link.unit_key} = a.{unit.key} AND k.{link.person_key} = q.{person.key}"
    )
    keys = f"SELECT q.{person.key} FROM {person.sql} q WHERE {condition.alternative}"
    total = f"SELECT COUNT(*) FROM {person.sql} q WHERE {condition.alternative}"
    return Form(
        f"To which {unit.plural} is every {condition.after(person.singular)} assigned? If there are no such "
        f"{person.plural}, return all {unit.plural}. Return the {unit.label.phrase}.",
        f"SELECT a.{unit.label.sql} FROM {unit.sql} a WHERE NOT EXISTS ({persons} AND NOT EXISTS ({assigned}))",
        f"SELECT a.{unit.label.sql} FROM {unit.sql} a WHERE (SELECT COUNT(*) FROM {link.sql} k WHERE k.{link.unit_key} "
        f"= a.{unit.key} AND k.{link.person_key} IN ({keys})) = ({total})",
    )


def _two_levels(rng: Random, schema: Schema) -> Form:
    place, unit, event = schema.place, schema.unit, schema.event
    condition, other = make_filter(rng, event, "z"), make_filter(rng, place, "x", 1)
    joined = f"{unit.sql} y ON y.{unit.parent_key} = x.{place.key}"
    events = f"{event.sql} z ON z.{event.parent_key} = y.{unit.key}"
    return Form(
        f"For each {other.after(place.singular)}, how many {condition.after(event.plural)} belong to the "
        f"{place.singular}'s {unit.plural}? Include {place.plural} without such {event.plural}, with the number 0. "
        f"Return the {place.label.phrase} and the number.",
        f"SELECT x.{place.label.sql}, COUNT(z.{event.key}) FROM {place.sql} x LEFT JOIN {joined} LEFT JOIN "
        f"{events}{condition.also()}{other.where()} GROUP BY x.{place.key}",
        f"SELECT x.{place.label.sql}, (SELECT COUNT(*) FROM {event.sql} z JOIN {unit.sql} y ON y.{unit.key} = "
        f"z.{event.parent_key} WHERE y.{unit.parent_key} = x.{place.key}{condition.also(alternative=True)}) FROM "
        f"{place.sql} x{other.where(alternative=True)}",
    )


def _latest(rng: Random, schema: Schema) -> Form:
    tables = Pair(schema.event, schema.unit)
    child, parent, key, label = tables.child, tables.parent, tables.key, tables.label
    date = child.dates[0]
    condition = make_filter(rng, child, "y", 1, exclude=date)
    last = rng.random() < 0.6
    word = "latest" if last else "earliest"
    is_best, rank = best(child, "y", child.parent_key, date, condition, high=last)
    return Form(
        f"For each {parent.singular}, which of the {parent.singular}'s {condition.after(child.plural)} has the {word} "
        f"{date.phrase}? In case of a tie, return all of them. Return the {parent.label.phrase} of the "
        f"{parent.singular} and the {child.label.phrase} of the {child.singular}.",
        f"SELECT {label}, y.{child.label.sql} FROM {tables.joined} WHERE {is_best}",
        f"SELECT {label}, c FROM (SELECT {key} AS k, y.{child.label.sql} AS c, {rank} AS place FROM {child.sql} "
        f"y{condition.where(alternative=True)}) JOIN {parent.sql} x ON x.{parent.key} = k WHERE place = 1",
    )


def _top_parents(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent = tables.child, tables.parent
    column, count = number_of(rng, child), rng.randint(2, 4)
    if is_year(column):
        return _days(rng, schema)
    condition = make_filter(rng, child, "y", 1, exclude=column)
    total = f"SUM(y.{column.sql})"
    return Form(
        f"Which {count} {parent.plural} have the highest total {column.phrase} of their "
        f"{condition.after(child.plural)}? Omit {parent.plural} without such {child.plural}. Return the "
        f"{parent.label.phrase} and the total, sorted by total in descending order and then by {parent.label.phrase}. "
        f"In case of a tie, the rows that come first in this order count. If there are fewer than {count}, return all.",
        f"{tables.per_parent(f'{total} AS s', condition)} ORDER BY s DESC, {tables.label} LIMIT {count}",
        f"{tables.from_groups(total, condition, 's')} ORDER BY -s, 1 LIMIT {count}",
        ordered=True,
    )


def _days(rng: Random, schema: Schema) -> Form:
    tables = Pair(*rng.choice([(child, parent) for child, parent in schema.pairs if child.role == EVENT]))
    child, parent = tables.child, tables.parent
    end, start = child.end, child.dates[0]
    condition = make_filter(rng, child, "y", 1, exclude=end)
    days = f"julianday(y.{end.sql}) - julianday(y.{start.sql})"
    return Form(
        f"For each {parent.singular}, what is the average number of days from the {start.phrase} to the {end.phrase} "
        f"of the {parent.singular}'s {condition.after(child.plural)}? Ignore {child.plural} that have not ended, and "
        f"omit {parent.plural} without any other {child.plural}. Return the {parent.label.phrase} and the average.",
        f"SELECT {tables.label}, AVG({days}) FROM {tables.joined} WHERE y.{end.sql} IS NOT NULL{condition.also()} "
        f"GROUP BY x.{parent.key}",
        f"{tables.from_groups(f'SUM({days}) / COUNT({days})', condition)} WHERE v IS NOT NULL",
    )


def _share(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent = tables.child, tables.parent
    condition = column_filter(rng, rng.choice([*child.categories, number_of(rng, child)]), "y")
    case = f"SUM(CASE WHEN {condition.sql} THEN 1.0 ELSE 0 END) / COUNT(*)"
    return Form(
        f"For each {parent.singular}, what share of the {parent.singular}'s {child.plural} (from 0 to 1) are "
        f"{child.plural} {condition.text}? Omit {parent.plural} without {child.plural}. Return the "
        f"{parent.label.phrase} and the share.",
        tables.per_parent(case, Filter()),
        f"SELECT {tables.label}, (SELECT AVG({condition.alternative}) FROM {child.sql} y WHERE {tables.match}) FROM "
        f"{parent.sql} x WHERE x.{parent.key} IN (SELECT {tables.key} FROM {child.sql} y)",
    )


def _above_siblings(rng: Random, schema: Schema) -> Form:
    tables = pair(rng, schema)
    child, parent, key = tables.child, tables.parent, tables.key
    column = number_of(rng, child)
    condition = make_filter(rng, child, "y", 1, exclude=column)
    name = f"y.{column.sql}"
    average = f"SELECT AVG(o.{column.sql}) FROM {child.sql} o WHERE o.{child.parent_key} = {key}"
    groups = f"SELECT o.{child.parent_key} AS k, AVG(o.{column.sql}) AS v FROM {child.sql} o GROUP BY 1"
    omit = f" Omit {child.plural} without {parent.singular}." if child.optional else ""
    subject = f"of the {condition.after(child.plural)}" if condition.text else child.plural
    return Form(
        f"Which {subject} have a higher {column.phrase} than the average of all {child.plural} of the same "
        f"{parent.singular}?{omit} Return the {child.label.phrase} and the {column.phrase}.",
        f"SELECT y.{child.label.sql}, {name} FROM {child.sql} y WHERE {name} > ({average}){condition.also()}",
        f"SELECT y.{child.label.sql}, {name} FROM {child.sql} y JOIN ({groups}) ON k = {key} WHERE {name} > "
        f"v{condition.also(alternative=True)}",
    )


def _per_month(rng: Random, schema: Schema) -> Form:
    tables = Pair(schema.event, schema.unit)
    child, parent = tables.child, tables.parent
    date, column = child.dates[0], rng.choice(parent.categories)
    condition = column_filter(rng, column, "x")
    name = f"y.{date.sql}"
    month = rng.random() < 0.4
    unit, pattern, length = ("month", "%Y-%m", 7) if month else ("year", "%Y", 4)
    fewest = rng.randint(2, 4)
    parents = f"SELECT x.{parent.key} FROM {parent.sql} x WHERE {condition.alternative}"
    rows = f"FROM {child.sql} y WHERE {tables.key} IN ({parents})"
    return Form(
        f"In which {unit}s, by {date.phrase}, did at least {fewest} {child.plural} take place that belong to "
        f"{parent.plural} {condition.text}? Return the {unit} as {'YYYY-MM' if month else 'YYYY'} and the number, "
        f"sorted by {unit}.",
        f"SELECT strftime('{pattern}', {name}) AS t, COUNT(*) FROM {tables.rows_with_parent} WHERE "
        f"{condition.sql} GROUP BY t HAVING COUNT(*) >= {fewest} ORDER BY t",
        f"SELECT t, n FROM (SELECT substr({name}, 1, {length}) AS t, COUNT(*) AS n {rows} GROUP BY 1) WHERE n > "
        f"{fewest - 1} ORDER BY t",
        ordered=True,
    )


HARD_FORMS: tuple[Ask, ...] = (
    _above_average,
    _most_children,
    _best_of_group,
    _both_or_but_not,
    _many_links,
    _all_links,
    _two_levels,
    _latest,
    _top_parents,
    _days,
    _share,
    _above_siblings,
    _per_month,
)

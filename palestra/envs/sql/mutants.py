"""Change a query in the ways in which almost correct queries differ from correct ones.

The mutants measure how well the grading separates correct from incorrect answers (`benchmarks/sql_mutants.py`): a
mutant that is not equivalent to the gold query must be rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from palestra.envs.sql.draw import shift

_TOKEN = re.compile(r"'(?:[^']|'')*'|[A-Za-z_][\w.]*|\d+(?:\.\d+)?|<>|<=|>=|\|\||\S")
_COMPARISONS = {
    ">": (">=", "<"), ">=": (">", "<="), "<": ("<=", ">"), "<=": ("<", ">="), "=": ("<>",), "<>": ("=",),
}  # fmt: skip
_AGGREGATES = {"SUM": ("AVG", "MAX"), "AVG": ("SUM", "MAX"), "MIN": ("MAX",), "MAX": ("MIN",)}
_SET_OPERATIONS = ("UNION", "EXCEPT", "INTERSECT")
_CLAUSES = ("WHERE", "HAVING", "GROUP", "ORDER", "LIMIT", *_SET_OPERATIONS)
_DATE = re.compile(r"'\d{4}-\d\d-\d\d'")

Columns = Mapping[str, Sequence[tuple[str, str]]]  # column names and types for each table


class Mutant(NamedTuple):
    operator: str
    sql: str


def mutants(sql: str, columns: Columns) -> list[Mutant]:
    """Return all queries that differ from `sql` by one change, without duplicates."""
    tokens = _TOKEN.findall(sql)
    original = " ".join(tokens)
    unique: dict[str, Mutant] = {}
    for operator, changed in _changes(tokens, columns):
        text = " ".join(token for token in changed if token)
        if text != original:
            unique.setdefault(text, Mutant(operator, text))
    return list(unique.values())


def _changes(tokens: list[str], columns: Columns) -> Iterator[tuple[str, list[str]]]:
    depths = _depths(tokens)
    for i, token in enumerate(tokens):
        word = token.upper()
        before = tokens[i - 1].upper() if i else ""
        after = tokens[i + 1].upper() if i + 1 < len(tokens) else ""
        for other in _COMPARISONS.get(token, ()):
            yield "comparison", _replaced(tokens, i, other)
        if word == "LEFT" and after == "JOIN":
            yield "left to inner join", _replaced(tokens, i, "")
        elif word == "JOIN" and before != "LEFT":
            yield "inner to left join", _replaced(tokens, i, "LEFT JOIN")
        elif word == "DISTINCT":
            yield "dropped distinct", _replaced(tokens, i, "")
        elif word == "SELECT" and after != "DISTINCT":
            yield "added distinct", _replaced(tokens, i, "SELECT DISTINCT")
        elif word == "AND" and not _in_between(tokens, depths, i):
            yield "and to or", _replaced(tokens, i, "OR")
        elif word == "OR":
            yield "and to or", _replaced(tokens, i, "AND")
        elif word == "DESC":
            yield "order", _replaced(tokens, i, "ASC")
        elif word == "NOT":
            yield "null and negation", _replaced(tokens, i, "")
        elif word in ("IN", "EXISTS") and before != "NOT":
            yield "null and negation", _replaced(tokens, i, f"NOT {token}")
        elif word == "IS" and after == "NULL":
            yield "null and negation", _replaced(tokens, i, "IS NOT")
        elif word == "COALESCE":
            yield from _without_default(tokens, depths, i)
        elif word == "LIMIT":
            yield "limit", tokens[:i] + tokens[i + 2 :]
        elif word in _AGGREGATES and after == "(":
            for other in _AGGREGATES[word]:
                yield "aggregate", _replaced(tokens, i, other)
        elif word == "COUNT" and after == "(":
            yield from _count_changes(tokens, i, columns)
        elif word in _SET_OPERATIONS:
            yield from _set_changes(tokens, i, after)
        if word in ("WHERE", "HAVING", "ON"):
            yield from _dropped_conditions(tokens, depths, i)
        if word in ("GROUP", "ORDER") and after == "BY":
            yield from _key_changes(tokens, depths, i)
        if token.isdigit():
            operator = "limit" if before == "LIMIT" else "constant"
            for change in (-1, 1):
                yield operator, _replaced(tokens, i, str(int(token) + change))
        if _DATE.fullmatch(token):
            for days in (-1, 1):
                yield "constant", _replaced(tokens, i, f"'{shift(token[1:-1], days)}'")
        yield from _column_changes(tokens, i, columns)


def _replaced(tokens: list[str], i: int, other: str) -> list[str]:
    return [*tokens[:i], other, *tokens[i + 1 :]]


def _depths(tokens: Sequence[str]) -> list[int]:
    """Return the number of open parentheses at each token."""
    depths, depth = [], 0
    for token in tokens:
        depth -= token == ")"
        depths.append(depth)
        depth += token == "("
    return depths


def _in_between(tokens: Sequence[str], depths: Sequence[int], i: int) -> bool:
    """Return whether the AND at `i` belongs to a BETWEEN."""
    for j in range(i - 1, -1, -1):
        if depths[j] < depths[i] or (depths[j] == depths[i] and tokens[j].upper() in ("AND", "OR", "WHERE", "ON")):
            return False
        if depths[j] == depths[i] and tokens[j].upper() == "BETWEEN":
            return True
    return False


def _end(tokens: Sequence[str], depths: Sequence[int], i: int, words: Sequence[str]) -> int:
    """Return the index of the first token after `i` that ends the clause starting at `i`."""
    for j in range(i + 1, len(tokens)):
        if depths[j] < depths[i] or (depths[j] == depths[i] and tokens[j].upper() in words):
            return j
    return len(tokens)


def _dropped_conditions(tokens: list[str], depths: list[int], i: int) -> Iterator[tuple[str, list[str]]]:
    words = (*_CLAUSES, "JOIN", "LEFT") if tokens[i].upper() == "ON" else _CLAUSES
    end = _end(tokens, depths, i, words)
    cuts = [
        j
        for j in range(i + 1, end)
        if tokens[j].upper() == "AND" and depths[j] == depths[i] and not _in_between(tokens, depths, j)
    ]
    if not cuts:
        if tokens[i].upper() != "ON":
            yield "dropped condition", tokens[:i] + tokens[end:]
        return
    starts = [i, *cuts]
    for start, stop in zip(starts, [*cuts, end], strict=True):
        if start == i:
            yield "dropped condition", tokens[: i + 1] + tokens[stop + 1 :]
        else:
            yield "dropped condition", tokens[:start] + tokens[stop:]


def _key_changes(tokens: list[str], depths: list[int], i: int) -> Iterator[tuple[str, list[str]]]:
    """Change the keys in GROUP BY or ORDER BY."""
    end = _end(tokens, depths, i, _CLAUSES)
    operator = "group" if tokens[i].upper() == "GROUP" else "order"
    cuts = [j for j in range(i + 2, end) if tokens[j] == "," and depths[j] == depths[i]]
    yield operator, tokens[:i] + tokens[end:]
    if cuts:
        yield operator, tokens[: i + 2] + tokens[cuts[0] + 1 :]
        yield operator, tokens[: cuts[-1]] + tokens[end:]
    if operator == "order":
        for stop in (*cuts, end):
            if tokens[stop - 1].upper() not in ("ASC", "DESC"):
                yield operator, [*tokens[:stop], "DESC", *tokens[stop:]]


def _count_changes(tokens: list[str], i: int, columns: Columns) -> Iterator[tuple[str, list[str]]]:
    close = next(j for j in range(i + 2, len(tokens)) if tokens[j] == ")")
    inner = tokens[i + 2 : close]
    if inner == ["*"]:
        for name in {name: None for table, names in columns.items() if table in tokens for name, _ in names}:
            yield "count", [*tokens[: i + 2], name, *tokens[close:]]
            yield "count", [*tokens[: i + 2], "DISTINCT", name, *tokens[close:]]
        return
    yield "count", [*tokens[: i + 2], "*", *tokens[close:]]
    if inner[0].upper() != "DISTINCT":
        yield "added distinct", [*tokens[: i + 2], "DISTINCT", *tokens[i + 2 :]]


def _without_default(tokens: list[str], depths: list[int], i: int) -> Iterator[tuple[str, list[str]]]:
    """Replace COALESCE(x, y) with x."""
    comma = next((j for j in range(i + 2, len(tokens)) if tokens[j] == "," and depths[j] == depths[i] + 1), None)
    if comma is not None:
        close = _end(tokens, depths, i + 2, ())
        yield "null and negation", [*tokens[:i], *tokens[i + 2 : comma], *tokens[close + 1 :]]


def _set_changes(tokens: list[str], i: int, after: str) -> Iterator[tuple[str, list[str]]]:
    start = i + 2 if after == "ALL" else i + 1
    for other in (*_SET_OPERATIONS, "UNION ALL"):
        yield "set operation", [*tokens[:i], *other.split(), *tokens[start:]]


def _column_changes(tokens: list[str], i: int, columns: Columns) -> Iterator[tuple[str, list[str]]]:
    """Replace a column with other columns of the same type in the same table."""
    prefix, dot, name = tokens[i].rpartition(".")
    if i + 1 < len(tokens) and tokens[i + 1] == "(":
        return
    others: dict[str, None] = {}
    for table in columns.values():
        kinds = [kind for column, kind in table if column == name]
        if kinds:
            others.update({column: None for column, kind in table if column != name and kind == kinds[0]})
    for other in others:
        yield "column", _replaced(tokens, i, f"{prefix}{dot}{other}")

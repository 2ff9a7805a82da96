"""Grade a query by comparing its results with the results of the gold query on the database and on its copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from palestra.envs.sql.guard import Database, Limits, Result, Row, run
from palestra.errors import EnvFailed

TOLERANCE = 1e-6  # relative tolerance, because a floating-point sum depends on the order of its terms

Compare = Literal["bag", "list", "set"]  # multiset of rows, ordered list of rows, or set of rows (as in BIRD)


class Verdict(NamedTuple):
    correct: bool
    why: str


def grade(query: str, gold: str, databases: Sequence[Database], compare: Compare, limits: Limits) -> Verdict:
    """Run both queries on every database. Return whether all results are equal, with an explanation.

    Raises EnvFailed if the gold query cannot be run on the first database.
    """
    for number, database in enumerate(databases):
        expected = _gold_result(database, gold, limits)
        if expected.error and number > 0:
            continue  # the gold query may fail on a reduced copy
        if expected.error:
            raise EnvFailed(f"the gold query fails: {expected.error}; query: {gold}")
        result = run(database, query, limits)
        if result.error:
            return Verdict(False, f"the query fails: {result.error}")
        if not same(result, expected, compare):
            where = "on the database" if number == 0 else "on a copy of the database with different data"
            return Verdict(False, f"its result is wrong {where}")
    return Verdict(True, "its results are correct on the database and on copies with different data")


@lru_cache(maxsize=512)  # the episodes in a group are graded with the same gold query on the same databases
def _gold_result(database: Database, gold: str, limits: Limits) -> Result:
    return run(database, gold, limits)


def same(one: Result, other: Result, compare: Compare) -> bool:
    """Return whether two results are equal. Column names are ignored, but the order of columns matters."""
    if one.more != other.more:
        return False
    if compare == "set":
        return set(one.rows) == set(other.rows)
    left, right = list(one.rows), list(other.rows)
    if len(left) != len(right):
        return False
    if compare == "bag":
        left.sort(key=_sort_key)
        right.sort(key=_sort_key)
    return all(_same_row(a, b) for a, b in zip(left, right, strict=True))


def _same_row(one: Row, other: Row) -> bool:
    return len(one) == len(other) and all(_same_cell(a, b) for a, b in zip(one, other, strict=True))


def _same_cell(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-9)
    return type(one) is type(other) and bool(one == other)


def _sort_key(row: Row) -> list[tuple[int, Any]]:
    """Return a key that sorts rows by cell type and value.

    Numbers are rounded to six significant digits, so that rows that differ only by rounding get the same key.
    """
    return [
        (0, "") if cell is None
        else (1, float(f"{cell:.6g}")) if isinstance(cell, int | float)
        else (2, cell) if isinstance(cell, str)
        else (3, cell)
        for cell in row
    ]  # fmt: skip

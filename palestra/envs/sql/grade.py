"""A submitted query and the gold one -> right or wrong, by what both give on the database and on copies of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from palestra.envs.sql.guard import Database, Limits, Result, Row, run
from palestra.errors import EnvFailed

CLOSE = 1e-6  # relative: sums of the same numbers in another order

Compare = Literal["bag", "list", "set"]  # rows with repetitions, in order, or without either (BIRD's rule)


class Verdict(NamedTuple):
    correct: bool
    why: str


def grade(query: str, gold: str, databases: Sequence[Database], compare: Compare, limits: Limits) -> Verdict:
    """Run both on every database; all must agree. EnvFailed where the gold query cannot be run on the first."""
    for number, database in enumerate(databases):
        wanted = run(database, gold, limits)
        if wanted.error and number > 0:
            continue  # a copy of somebody's database may lack what the query needs
        if wanted.error:
            raise EnvFailed(f"the gold query fails: {wanted.error}; it was {gold}")
        found = run(database, query, limits)
        if found.error:
            return Verdict(False, f"the query fails: {found.error}")
        if not same(found, wanted, compare):
            where = "on the database" if number == 0 else "on a copy of the database with other data"
            return Verdict(False, f"its result is not the right one {where}")
    return Verdict(True, "its results are right on the database and on copies of it with other data")


def same(one: Result, other: Result, compare: Compare) -> bool:
    """Whether two results are equal. Names of columns do not count, their order does."""
    if one.more != other.more:
        return False
    if compare == "set":
        return set(one.rows) == set(other.rows)
    left, right = list(one.rows), list(other.rows)
    if len(left) != len(right):
        return False
    if compare == "bag":
        left.sort(key=_sorting)
        right.sort(key=_sorting)
    return all(_same_row(a, b) for a, b in zip(left, right, strict=True))


def _same_row(one: Row, other: Row) -> bool:
    return len(one) == len(other) and all(_same_cell(a, b) for a, b in zip(one, other, strict=True))


def _same_cell(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-9)
    return type(one) is type(other) and bool(one == other)


def _sorting(row: Row) -> list[tuple[int, Any]]:
    """Rows that may be equal come at equal places: by kind of cell, numbers by six digits."""
    return [
        (0, "") if cell is None
        else (1, float(f"{cell:.6g}")) if isinstance(cell, int | float)
        else (2, cell) if isinstance(cell, str)
        else (3, cell)
        for cell in row
    ]  # fmt: skip

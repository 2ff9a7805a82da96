"""The math grader agrees with how answers were made: thousands of pairs, equal in value or nearly so."""

from __future__ import annotations

import pytest

from palestra.grading import grade_math
from tests.grading.pairs import Pair, pairs


@pytest.mark.parametrize("seed", [7])
def test_no_false_accept_and_hardly_a_false_reject(seed: int) -> None:
    made = pairs(seed)
    equal = [pair for pair in made if pair.equal]
    near = [pair for pair in made if not pair.equal]
    assert len(equal) >= 2_000
    assert len(near) >= 1_500
    assert [pair for pair in near if _accepted(pair)] == []
    rejected = [pair for pair in equal if not _accepted(pair)]
    assert len(rejected) < 0.005 * len(equal), rejected


def test_a_gold_may_be_either_of_the_two() -> None:
    """Equality does not depend on which one is the gold, but for the kinds where it should."""
    made = [pair for pair in pairs(11) if pair.kind not in ("choice", "symbolic")][::5]
    differing = [pair for pair in made if _accepted(pair) != grade_math(pair.gold, pair.answer).correct]
    assert differing == []


def _accepted(pair: Pair) -> bool:
    grade = grade_math(pair.answer, pair.gold)
    assert grade.why
    assert grade.score == float(grade.correct)
    return grade.correct

"""Test the math grader on thousands of generated pairs of answers with equal or slightly different values."""

from __future__ import annotations

import pytest

from palestra.grading import grade_math
from tests.grading.pairs import Pair, pairs


@pytest.mark.parametrize("seed", [7])
def test_no_false_accepts_and_few_false_rejects(seed: int) -> None:
    generated = pairs(seed)
    equal = [pair for pair in generated if pair.equal]
    unequal = [pair for pair in generated if not pair.equal]
    assert len(equal) >= 2_000
    assert len(unequal) >= 1_500
    assert [pair for pair in unequal if _accepted(pair)] == []
    rejected = [pair for pair in equal if not _accepted(pair)]
    assert len(rejected) < 0.005 * len(equal), rejected


def test_equality_is_symmetric() -> None:
    """Check that swapping answer and gold does not change the grade, for all answers with symmetric equality."""
    sample = [pair for pair in pairs(11) if pair.kind not in ("choice", "symbolic")][::5]
    differing = [pair for pair in sample if _accepted(pair) != grade_math(pair.gold, pair.answer).correct]
    assert differing == []


def _accepted(pair: Pair) -> bool:
    grade = grade_math(pair.answer, pair.gold)
    assert grade.why
    assert grade.score == float(grade.correct)
    return grade.correct

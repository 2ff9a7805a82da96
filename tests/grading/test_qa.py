"""Test exact match and F1 for short answers."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import BadValue
from palestra.grading import exact_match, f1, grade_qa


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("The Eiffel Tower!", "eiffel tower"),
        ("an  apple", "Apple."),
        ("U.S.A.", "usa"),
        ("Caf\u00e9", "CAFE\u0301"),
        ("STRASSE", "stra\u00dfe"),
        ("\uff21\uff22", "ab"),
        ("\u201cHamlet\u201d", "Hamlet"),
        ("rock \u2013 roll", "rock roll"),
        ("+", "+"),
        ("The The", "the the"),
    ],
)
def test_matching_answers(answer: str, gold: str) -> None:
    grade = grade_qa(answer, [gold])
    assert grade.correct, grade.why
    assert grade.score == 1.0
    assert exact_match(answer, gold)
    assert f1(answer, gold) == 1.0


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        ("Paris", "London", 0.0),
        ("the city of Paris", "Paris", 0.5),  # "the" is ignored
        ("Barack Obama", "Obama Barack", 0.999),  # same words in another order
        ("", "Paris", 0.0),
        ("+", "-", 0.0),
        ("\u6771\u4eac\u90fd", "\u6771\u4eac", 0.8),
    ],
)
def test_other_answers(answer: str, gold: str, score: float) -> None:
    grade = grade_qa(answer, gold)
    assert not grade.correct
    assert grade.score == pytest.approx(score, abs=1e-3)
    assert grade.hint == ""


def test_the_best_gold_counts() -> None:
    assert grade_qa("NYC", ["New York City", "NYC", "New York"]).correct
    grade = grade_qa("York", ["New York City", "New York"])
    assert grade.score == pytest.approx(2 / 3)
    assert "'New York'" in grade.why


def test_threshold() -> None:
    assert not grade_qa("city of Paris", ["Paris"]).correct
    assert grade_qa("city of Paris", ["Paris"], threshold=0.5).correct
    assert not grade_qa("city of Rome", ["Paris"], threshold=0.5).correct
    with pytest.raises(BadValue):
        grade_qa("Paris", ["Paris"], threshold=2)


@pytest.mark.parametrize("golds", [[], [None], 7])
def test_golds_are_checked(golds: object) -> None:
    with pytest.raises(BadValue):
        grade_qa("Paris", golds)  # type: ignore[arg-type]


def test_very_long_answers() -> None:
    grade = grade_qa("Paris " * 200_000, ["Paris"])
    assert not grade.correct
    assert "the maximum is" in grade.why


@given(st.text(max_size=40), st.text(max_size=40))
def test_properties(one: str, two: str) -> None:
    assert grade_qa(one, one).correct
    assert 0 <= f1(one, two) <= 1
    assert f1(one, two) == f1(two, one)
    assert exact_match(one, two) == exact_match(two, one) == grade_qa(one, two).correct
    assert f1(one, two) == 1.0 or not exact_match(one, two)
    assert exact_match(unicodedata.normalize("NFD", one), unicodedata.normalize("NFC", one))

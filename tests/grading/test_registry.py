"""Test the registry of graders: built-in graders and functions registered by a user."""

from __future__ import annotations

from typing import Any

import pytest

from palestra.errors import BadValue
from palestra.grading import Grade, get_grader, grade, grade_math, grader_names, register_grader, registry


def grade_length(answer: str, gold: int, *, margin: int = 0) -> Grade:
    distance = abs(len(answer) - gold)
    return Grade(correct=distance <= margin, score=float(distance <= margin), why=f"{distance} characters off")


def test_built_in_graders() -> None:
    assert grader_names() == ["code", "math", "qa"]
    assert get_grader("math") is grade_math
    assert grade("qa", "The Eiffel Tower!", ["eiffel tower"]).correct


def test_a_function_is_a_grader() -> None:
    try:
        register_grader("length", grade_length)
        register_grader("length", grade_length)
        assert "length" in grader_names()
        assert grade("length", "hello", 5).correct
        assert not grade("length", "hello", 4).correct
        assert grade(grade_length, "hello", 4, margin=1).correct
    finally:
        registry.GRADERS.registered.clear()


def test_usage_errors_raise() -> None:
    with pytest.raises(BadValue, match="already exists"):
        register_grader("math", grade_length)
    with pytest.raises(BadValue, match="no grader named 'maths'. Did you mean math"):
        get_grader("maths")
    with pytest.raises(BadValue, match="must be callable"):
        register_grader("broken", 5)  # type: ignore[arg-type]

    def no_grade(answer: str, gold: Any) -> bool:
        return bool(answer == gold)

    with pytest.raises(BadValue, match="must return a Grade"):
        grade(no_grade, "a", "a")  # type: ignore[arg-type]

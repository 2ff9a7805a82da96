"""Grades, and the interface of graders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """Verdict on an answer. Every answer gets one; if grading itself fails, InfrastructureError is raised."""

    correct: bool
    score: float  # 0 to 1; 1 if correct
    why: str  # for logs and viewers; may contain the solution
    hint: str = ""  # may be shown to the agent before another attempt; never contains the solution


Grader = Callable[..., Grade]  # grader(answer, gold, **options); must not raise for any answer

"""The result of grading an answer (`Grade`) and the interface that graders implement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """Result of grading an answer. Every answer gets a grade; InfrastructureError is raised if grading itself fails."""

    correct: bool
    score: float  # 0 to 1; 1 if correct
    why: str  # reason, for logs and viewers; may contain the solution
    hint: str = ""  # feedback for the agent before another attempt; never contains the solution


Grader = Callable[..., Grade]  # grader(answer, gold, **options); must not raise for any answer

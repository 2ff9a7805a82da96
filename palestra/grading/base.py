"""Grade: what a grader says of an answer, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """A verdict. Whatever was answered gets one; where grading itself broke, InfrastructureError is raised."""

    correct: bool
    score: float  # 0 to 1; 1 where correct
    why: str  # for logs and viewers; may tell the solution
    hint: str = ""  # what the agent may be told when it tries again; never the solution

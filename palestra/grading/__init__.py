"""Answers -> grades, each with its reason.

```
grade_math("50%", "1/2").correct                                       # True
grade_qa("The Eiffel Tower!", ["Eiffel tower"]).correct                # True
grade_code("print(int(input()) * 2)", {"inputs": ["4"], "outputs": ["8"]}).correct
```

Every grader takes any string and says correct or not, with a score and why. What is no fault of the answer (a sandbox
that broke, workers that cannot be started) is an InfrastructureError.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from palestra.grading.base import Grade

if TYPE_CHECKING:
    from palestra.grading.code import grade_code
    from palestra.grading.hidden import AssertTest, CallTest, HiddenTest, StdinTest, read_tests
    from palestra.grading.math import grade_math
    from palestra.grading.qa import exact_match, f1, grade_qa

__all__ = [
    "AssertTest",
    "CallTest",
    "Grade",
    "HiddenTest",
    "StdinTest",
    "exact_match",
    "f1",
    "grade_code",
    "grade_math",
    "grade_qa",
    "read_tests",
]

_HOME = {
    **dict.fromkeys(("AssertTest", "CallTest", "HiddenTest", "StdinTest", "read_tests"), "hidden"),
    **dict.fromkeys(("exact_match", "f1", "grade_qa"), "qa"),
    "grade_code": "code",
    "grade_math": "math",
}


def __getattr__(name: str) -> Any:
    """Each grader is loaded when first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value

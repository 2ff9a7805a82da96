"""Graders: compare an answer with a reference and return a Grade.

```
grade_math("50%", "1/2").correct                                       # True
grade_qa("The Eiffel Tower!", ["Eiffel tower"]).correct                # True
grade_code("print(int(input()) * 2)", {"inputs": ["4"], "outputs": ["8"]}).correct
```

A grader accepts any string and returns whether the answer is correct, with a score and a reason. Failures that the
answer did not cause (a broken sandbox, workers that cannot start) raise an InfrastructureError.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from palestra.grading.base import Grade, Grader
from palestra.grading.registry import get_grader, grade, grader_names, register_grader

if TYPE_CHECKING:
    from palestra.grading.code import grade_code
    from palestra.grading.hidden_tests import AssertTest, CallTest, HiddenTest, StdinTest, read_tests
    from palestra.grading.math import grade_math
    from palestra.grading.qa import exact_match, f1, grade_qa

__all__ = [
    "AssertTest",
    "CallTest",
    "Grade",
    "Grader",
    "HiddenTest",
    "StdinTest",
    "exact_match",
    "f1",
    "get_grader",
    "grade",
    "grade_code",
    "grade_math",
    "grade_qa",
    "grader_names",
    "read_tests",
    "register_grader",
]

_MODULES = {
    **dict.fromkeys(("AssertTest", "CallTest", "HiddenTest", "StdinTest", "read_tests"), "hidden_tests"),
    **dict.fromkeys(("exact_match", "f1", "grade_qa"), "qa"),
    "grade_code": "code",
    "grade_math": "math",
}


def __getattr__(name: str) -> Any:
    """Import a grader on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value

"""Look up graders by name: built-in graders, graders registered in Python, and entry points of installed packages."""

from __future__ import annotations

from typing import Any

from palestra.errors import BadValue
from palestra.grading.base import Grade, Grader
from palestra.plugins import PluginRegistry, import_object

GRADERS: PluginRegistry[Grader] = PluginRegistry(
    "grader",
    group="graders",
    built_in={
        "code": "palestra.grading.code:grade_code",
        "math": "palestra.grading.math:grade_math",
        "qa": "palestra.grading.qa:grade_qa",
    },
    add_with="register_grader()",
)
register_grader = GRADERS.register
grader_names = GRADERS.names


def get_grader(name: str) -> Grader:
    """Return the grader registered as `name`, or the function that `module:function` refers to."""
    grader: Grader = import_object(name) if ":" in name else GRADERS.get(name)
    return grader


def grade(grader: str | Grader, answer: str, gold: Any, **options: Any) -> Grade:
    """Grade an answer with a grader, passed by name or as a function, and check that it returns a Grade."""
    function = get_grader(grader) if isinstance(grader, str) else grader
    result = function(answer, gold, **options)
    if not isinstance(result, Grade):
        raise BadValue(f"the grader {grader!r} must return a Grade, got {type(result).__name__}")
    return result

"""Look up built-in and registered graders by name."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any

from palestra.errors import BadValue
from palestra.grading.base import Grade, Grader

_BUILT_IN = {
    "code": "palestra.grading.code:grade_code",
    "math": "palestra.grading.math:grade_math",
    "qa": "palestra.grading.qa:grade_qa",
}
_registered: dict[str, Grader] = {}


def register_grader(name: str, grader: Grader, *, overwrite: bool = False) -> None:
    """Register a grader under `name`: a function `grader(answer, gold, **options)` that returns a Grade."""
    if not callable(grader):
        raise BadValue(f"the grader {name!r} must be callable, got {type(grader).__name__}")
    if not overwrite and (name in _BUILT_IN or _registered.get(name, grader) is not grader):
        raise BadValue(f"a grader named {name!r} already exists; choose another name or pass overwrite=True")
    _registered[name] = grader


def get_grader(name: str) -> Grader:
    """Return the grader registered as `name`."""
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        built_in: Grader = getattr(import_module(module), attribute)
        return built_in
    names = grader_names()
    close = get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise BadValue(f"no grader named {name!r}.{hint} Available: {', '.join(names)}; add one with register_grader()")


def grader_names() -> list[str]:
    """Return the names of all graders, sorted."""
    return sorted({*_registered, *_BUILT_IN})


def grade(grader: str | Grader, answer: str, gold: Any, **options: Any) -> Grade:
    """Grade an answer with a grader, passed by name or as a function, and check that it returns a Grade."""
    function = get_grader(grader) if isinstance(grader, str) else grader
    result = function(answer, gold, **options)
    if not isinstance(result, Grade):
        raise BadValue(f"the grader {grader!r} must return a Grade, got {type(result).__name__}")
    return result

"""Check the keyword arguments of environment constructors, and suggest the nearest name for a misspelled one."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from palestra.errors import UnknownKeyword

_KEYWORDS: dict[type, frozenset[str] | None] = {}


def check_keywords(cls: type, kwargs: dict[str, Any]) -> None:
    """Raise UnknownKeyword if the constructor of `cls` does not accept one of `kwargs`."""
    accepted = accepted_keywords(cls)
    if accepted is not None and not accepted.issuperset(kwargs):
        _reject_keywords(cls, kwargs, accepted)


def accepted_keywords(cls: type) -> frozenset[str] | None:
    """Return the keyword arguments that the constructor accepts, following `**kwargs` to base classes.

    None means that any keyword argument is accepted.
    """
    if cls in _KEYWORDS:
        return _KEYWORDS[cls]
    accepted: frozenset[str] | None = None
    names: set[str] = set()
    bases = [base for base in cls.__mro__ if "__init__" in base.__dict__]
    for base in bases:
        init = base.__dict__["__init__"]
        if base is object:
            accepted = frozenset() if base is bases[0] else None  # None if every class accepts **kwargs
            break
        if not isinstance(init, FunctionType):
            break
        code = init.__code__
        names.update(code.co_varnames[max(1, code.co_posonlyargcount) : code.co_argcount + code.co_kwonlyargcount])
        if not code.co_flags & 0x08:  # no **kwargs
            accepted = frozenset(names)
            break
    _KEYWORDS[cls] = accepted
    return accepted


def _reject_keywords(cls: type, kwargs: dict[str, Any], accepted: frozenset[str]) -> None:
    from palestra.suggestions import suggest

    unknown = sorted(set(kwargs) - accepted)
    candidates = [match for name in unknown if (match := suggest(name, sorted(accepted)))]
    hint = f" Did you mean {', '.join(candidates)}?" if candidates else ""
    listed = f" Its keyword arguments are: {', '.join(sorted(accepted))}." if accepted else " It has none."
    raise UnknownKeyword(f"{cls.__name__} has no keyword argument {', '.join(unknown)}.{hint}{listed}")

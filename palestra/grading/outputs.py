"""What a program gave and what was expected -> the same, or not; floats within a tolerance where asked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

LONGEST_INT = 4_000  # digits; Python itself refuses to read more than 4,300


def same_text(said: str, expected: str, *, tolerance: float | None = None) -> bool:
    """Equal up to blanks and line breaks; with a `tolerance`, numbers up to it, relative or absolute."""
    if said == expected:
        return True
    ours, theirs = said.split(), expected.split()
    if ours == theirs:
        return True
    if tolerance is None or len(ours) != len(theirs):
        return False
    return all(a == b or _close(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))


def _close(said: str, expected: str, tolerance: float) -> bool:
    if len(said) > LONGEST_INT or len(expected) > LONGEST_INT or "_" in said:
        return False
    try:
        ours, theirs = float(said), float(expected)
    except ValueError:
        return False
    return _near(ours, theirs, tolerance)


def _near(ours: float, theirs: float, tolerance: float) -> bool:
    return ours == theirs or abs(ours - theirs) <= tolerance * max(1.0, abs(theirs))


def same_value(said: Any, expected: Any, *, tolerance: float | None = None, strict: bool = False) -> bool:
    """Equal as data; unless `strict`, a tuple is a list, as JSON has one of them."""
    if isinstance(said, Unknown) or isinstance(expected, Unknown):
        return False
    if isinstance(said, bool) or isinstance(expected, bool):
        return bool(said == expected)
    if isinstance(said, int | float) and isinstance(expected, int | float):
        if isinstance(said, float) and isinstance(expected, float) and math.isnan(said) and math.isnan(expected):
            return not strict
        if said == expected:
            return True
        try:
            return tolerance is not None and _near(float(said), float(expected), tolerance)
        except OverflowError:
            return False
    if isinstance(said, list | tuple) and isinstance(expected, list | tuple):
        if strict and type(said) is not type(expected):
            return False
        return len(said) == len(expected) and all(
            same_value(a, b, tolerance=tolerance, strict=strict) for a, b in zip(said, expected, strict=True)
        )
    if isinstance(said, Mapping) and isinstance(expected, Mapping):
        if not strict:
            said = {str(key): value for key, value in said.items()}  # JSON's keys are strings
            expected = {str(key): value for key, value in expected.items()}
        return said.keys() == expected.keys() and all(
            same_value(said[key], expected[key], tolerance=tolerance, strict=strict) for key in said
        )
    return bool(said == expected)


class Unknown:
    """A value that is no plain data: equal to nothing."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"an object of class {self.kind}"


def decoded(text: str) -> Any:
    """What the driver inside the sandbox wrote; ValueError or RecursionError where it wrote nothing readable."""
    return _plain(json.loads(text, parse_int=_int), 0)


def _int(digits: str) -> Any:
    return int(digits) if len(digits) <= LONGEST_INT else Unknown("int, with thousands of digits")


def _plain(value: Any, depth: int) -> Any:
    """Undo the tags: {"tuple": [...]} and the like; a plain list or scalar is itself."""
    if depth > 200:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("not what the driver writes")
    ((tag, inside),) = value.items()
    if tag == "dict" and isinstance(inside, Sequence):
        return {_hashable(_plain(k, depth + 1)): _plain(v, depth + 1) for k, v in inside}
    if tag in ("tuple", "set", "frozenset") and isinstance(inside, list):
        items = [_plain(item, depth + 1) for item in inside]
        return tuple(items) if tag == "tuple" else {_hashable(item) for item in items}
    if tag == "bytes" and isinstance(inside, str):
        return bytes.fromhex(inside)
    if tag == "complex" and isinstance(inside, list) and len(inside) == 2:
        return complex(*inside)
    if tag == "other" and isinstance(inside, str):
        return Unknown(inside[:60])
    raise ValueError("not what the driver writes")


def _hashable(value: Any) -> Any:
    if isinstance(value, list | dict | set):
        raise ValueError("not what the driver writes")
    return value

"""Compare a program's output or return value with the expected value, optionally with a tolerance."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

MAX_DIGITS = 4_000  # longer integers are not parsed; Python's own limit is 4,300


def same_text(actual: str, expected: str, *, tolerance: float | None = None) -> bool:
    """Compare two texts, ignoring whitespace; numbers may differ by `tolerance` (relative or absolute)."""
    if actual == expected:
        return True
    actual_tokens, expected_tokens = actual.split(), expected.split()
    if actual_tokens == expected_tokens:
        return True
    if tolerance is None or len(actual_tokens) != len(expected_tokens):
        return False
    return all(a == b or _close(a, b, tolerance) for a, b in zip(actual_tokens, expected_tokens, strict=True))


def _close(actual: str, expected: str, tolerance: float) -> bool:
    if len(actual) > MAX_DIGITS or len(expected) > MAX_DIGITS or "_" in actual:
        return False
    try:
        numbers = float(actual), float(expected)
    except ValueError:
        return False
    return _near(*numbers, tolerance)


def _near(actual: float, expected: float, tolerance: float) -> bool:
    return actual == expected or abs(actual - expected) <= tolerance * max(1.0, abs(expected))


def same_value(actual: Any, expected: Any, *, tolerance: float | None = None, strict: bool = False) -> bool:
    """Compare two values as data; unless `strict`, a tuple equals a list with the same items, as in JSON."""
    if isinstance(actual, OpaqueValue) or isinstance(expected, OpaqueValue):
        return False
    if isinstance(actual, bool) or isinstance(expected, bool):
        return bool(actual == expected)
    if isinstance(actual, int | float) and isinstance(expected, int | float):
        if isinstance(actual, float) and isinstance(expected, float) and math.isnan(actual) and math.isnan(expected):
            return not strict
        if actual == expected:
            return True
        try:
            return tolerance is not None and _near(float(actual), float(expected), tolerance)
        except OverflowError:
            return False
    if isinstance(actual, list | tuple) and isinstance(expected, list | tuple):
        if strict and type(actual) is not type(expected):
            return False
        return len(actual) == len(expected) and all(
            same_value(a, b, tolerance=tolerance, strict=strict) for a, b in zip(actual, expected, strict=True)
        )
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if not strict:
            actual = {str(key): value for key, value in actual.items()}  # JSON keys are strings
            expected = {str(key): value for key, value in expected.items()}
        return actual.keys() == expected.keys() and all(
            same_value(actual[key], expected[key], tolerance=tolerance, strict=strict) for key in actual
        )
    return bool(actual == expected)


class OpaqueValue:
    """A value that is not plain data; it does not equal any value."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"an object of class {self.kind}"


def decode_output(text: str) -> Any:
    """Decode a result of `batch_program`; raise ValueError or RecursionError if it is invalid."""
    return _plain(json.loads(text, parse_int=_int), 0)


def _int(digits: str) -> Any:
    return int(digits) if len(digits) <= MAX_DIGITS else OpaqueValue("int, with thousands of digits")


def _plain(value: Any, depth: int) -> Any:
    """Convert tags such as {"tuple": [...]} back to values."""
    if depth > 200:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError("not written by batch_program")
    ((tag, content),) = value.items()
    if tag == "dict" and isinstance(content, Sequence):
        return {_hashable(_plain(k, depth + 1)): _plain(v, depth + 1) for k, v in content}
    if tag in ("tuple", "set", "frozenset") and isinstance(content, list):
        items = [_plain(item, depth + 1) for item in content]
        return tuple(items) if tag == "tuple" else {_hashable(item) for item in items}
    if tag == "bytes" and isinstance(content, str):
        return bytes.fromhex(content)
    if tag == "complex" and isinstance(content, list) and len(content) == 2:
        return complex(*content)
    if tag == "other" and isinstance(content, str):
        return OpaqueValue(content[:60])
    raise ValueError("not written by batch_program")


def _hashable(value: Any) -> Any:
    if isinstance(value, list | dict | set):
        raise ValueError("not written by batch_program")
    return value

"""Compare a program's output or return value with the expected value, optionally with a tolerance."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

MAX_DIGITS = 4_000  # maximum length of a parsed integer; Python's own limit is 4,300
MAX_HASHED = 100  # maximum number of items in a frozen set that a program returned as a key


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
    if not (math.isfinite(actual) and math.isfinite(expected)):
        return actual == expected or (math.isnan(actual) and math.isnan(expected))
    return abs(actual - expected) <= tolerance * max(1.0, abs(expected))


def same_value(actual: Any, expected: Any, *, tolerance: float | None = None, strict: bool = False) -> bool:
    """Compare two values as data; unless `strict`, a tuple equals a list with the same items, as in JSON.

    `actual` may come from a hostile program. The time is linear in its size: its items are looked up in tables that
    contain only items of `expected`, because a table of hostile integers can take quadratic time to build.
    """
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
    if isinstance(actual, DictValue | Mapping) and isinstance(expected, Mapping):
        pairs = actual.pairs if isinstance(actual, DictValue) else list(actual.items())
        return _same_pairs(pairs, expected, tolerance=tolerance, strict=strict)
    if isinstance(actual, SetValue | set | frozenset) and isinstance(expected, set | frozenset):
        items = actual.items if isinstance(actual, SetValue) else list(actual)
        numbers = {item: number for number, item in enumerate(expected)}
        indices = {numbers.get(_key(item)) for item in items}
        return None not in indices and len(indices) == len(items) == len(numbers)
    return bool(actual == expected)


def _same_pairs(
    pairs: list[tuple[Any, Any]], expected: Mapping[Any, Any], *, tolerance: float | None, strict: bool
) -> bool:
    if not strict:
        expected = {str(key): value for key, value in expected.items()}  # JSON keys are strings
    converted = {}
    for actual_key, value in pairs:
        key = _key(actual_key) if strict else str(actual_key)
        if key not in expected:
            return False
        converted[key] = value
    return len(converted) == len(expected) and all(
        same_value(value, expected[key], tolerance=tolerance, strict=strict) for key, value in converted.items()
    )


class OpaqueValue:
    """A value that is not plain data; it does not equal any value."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"an object of class {self.kind}"


class SetValue:
    """A set that a program returned. Its items are not hashed, because this may take quadratic time."""

    def __init__(self, items: list[Any], kind: str) -> None:
        self.items = items
        self.kind = kind

    def __repr__(self) -> str:
        return f"{self.kind}({self.items!r})"


class DictValue:
    """A dictionary that a program returned. Its keys are not hashed, because this may take quadratic time."""

    def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
        self.pairs = pairs

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{key!r}: {value!r}' for key, value in self.pairs)}}}"


def _key(value: Any) -> Any:
    """Return a hashable value that equals `value`; a large frozen set is returned as it is and equals nothing."""
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    if isinstance(value, SetValue) and value.kind == "frozenset" and len(value.items) <= MAX_HASHED:
        return frozenset(map(_key, value.items))
    return value


def is_opaque(value: Any) -> bool:
    """Return whether the value contains an object that is not plain data."""
    if isinstance(value, list | tuple):
        return any(map(is_opaque, value))
    if isinstance(value, SetValue):
        return any(map(is_opaque, value.items))
    if isinstance(value, DictValue):
        return any(is_opaque(key) or is_opaque(item) for key, item in value.pairs)
    return isinstance(value, OpaqueValue)


def to_source(value: Any) -> str:
    """Return a Python expression for a decoded value that is not opaque."""
    if isinstance(value, float) and not math.isfinite(value):
        return "(1e999 - 1e999)" if math.isnan(value) else "1e999" if value > 0 else "-1e999"
    if isinstance(value, complex):
        return f"complex({to_source(value.real)}, {to_source(value.imag)})"
    if isinstance(value, list):
        return f"[{', '.join(map(to_source, value))}]"
    if isinstance(value, tuple):
        return f"({''.join(f'{to_source(item)}, ' for item in value)})"
    if isinstance(value, SetValue):
        return f"{value.kind}([{', '.join(map(to_source, value.items))}])"
    if isinstance(value, DictValue):
        return f"{{{', '.join(f'{to_source(key)}: {to_source(item)}' for key, item in value.pairs)}}}"
    return repr(value)


def decode_output(text: str) -> Any:
    """Decode a result of `call_program`; raise ValueError if it is invalid. A hostile program may write anything."""
    try:
        return _plain(json.loads(text, parse_int=_int), 0)
    except (TypeError, RecursionError, OverflowError, MemoryError) as err:
        raise ValueError("not written by call_program") from err


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
        raise ValueError("not written by call_program")
    ((tag, content),) = value.items()
    if tag == "dict" and isinstance(content, list):
        pairs = [(_plain(k, depth + 1), _plain(v, depth + 1)) for k, v in content]
        return DictValue([(_hashable(key), item) for key, item in pairs])
    if tag in ("tuple", "set", "frozenset") and isinstance(content, list):
        items = [_plain(item, depth + 1) for item in content]
        return tuple(items) if tag == "tuple" else SetValue([_hashable(item) for item in items], tag)
    if tag == "bytes" and isinstance(content, str):
        return bytes.fromhex(content)
    if tag == "complex" and isinstance(content, list) and len(content) == 2:
        return complex(*map(float, content))
    if tag == "other" and isinstance(content, str):
        return OpaqueValue(content[:60])
    raise ValueError("not written by call_program")


def _hashable(value: Any) -> Any:
    if isinstance(value, list | DictValue) or (isinstance(value, SetValue) and value.kind == "set"):
        raise ValueError("not written by call_program")
    if isinstance(value, tuple):
        for item in value:
            _hashable(item)
    return value

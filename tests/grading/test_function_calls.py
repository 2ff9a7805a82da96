"""Test the comparison of function calls with the calls that BFCL accepts."""

from __future__ import annotations

from typing import Any

import pytest

from palestra.grading.function_calls import grade_calls, read_calls

AREA = {
    "name": "geometry.area",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "integer"},
            "height": {"type": "float"},
            "unit": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "round": {"type": "boolean"},
            "point": {"type": "dict"},
        },
        "required": ["base", "height"],
    },
}
ACCEPTED: list[dict[str, dict[str, Any]]] = [
    {
        "geometry.area": {
            "base": [10],
            "height": [5.0],
            "unit": ["square meters", ""],
            "tags": [["a b", "c"], ""],
            "round": [True, ""],
            "point": [{"x": [1], "y": [2, ""]}, ""],
        }
    }
]


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("[geometry.area(base=10, height=5.0)]", True),
        ("geometry.area(base=10, height=5)", True),  # an integer is accepted for a float
        ("I will call it.\n```python\n[geometry_area(base=10, height=5.0, unit='Square-Meters')]\n```", True),
        ('<tool_call>{"name": "geometry.area", "arguments": {"base": 10, "height": 5.0}}</tool_call>', True),
        ('[{"name": "geometry.area", "arguments": {"base": 10, "height": 5.0}}]', True),
        ("[geometry.area(base=10, height=5.0, tags=['A B', 'c'], round=True, point={'x': 1})]", True),
        ("[geometry.area(base=10, height=5.0, tags=('a b', 'c'))]", True),
        ("[geometry.area(base=10, height=5.0, tags=['c', 'a b'])]", False),
        ("[geometry.area(base=10, height=5.0, point={'y': 2})]", False),
        ("[geometry.area(base=10, height=5.0, point={'x': 1, 'z': 2})]", False),
        ("[geometry.area(base=10, height=5.0, round=1)]", False),
        ("[geometry.area(base=10.0, height=5.0)]", False),
        ("[geometry.area(base='10', height=5.0)]", False),
        ("[geometry.area(base=True, height=5.0)]", False),
        ("[geometry.area(base=11, height=5.0)]", False),
        ("[geometry.area(base=10)]", False),
        ("[geometry.area(base=10, height=5.0, color='red')]", False),
        ("[area(base=10, height=5.0)]", False),
        ("[geometry.area(base=10, height=5.0), geometry.area(base=10, height=5.0)]", False),
    ],
)
def test_one_call(reply: str, right: bool) -> None:
    calls = read_calls(reply)
    assert calls is not None
    assert grade_calls(calls, ACCEPTED, [AREA]).correct is right


def test_parallel_calls_in_any_order() -> None:
    play: dict[str, Any] = {
        "name": "play",
        "parameters": {"properties": {"song": {"type": "string"}}, "required": ["song"]},
    }
    accepted = [{"play": {"song": ["A"]}}, {"play": {"song": ["B"]}}]
    for reply, right in (
        ("[play(song='A'), play(song='B')]", True),
        ("[play(song='B'), play(song='A')]", True),
        ("play(song='B')\nplay(song='A')", True),
        ("[play(song='A'), play(song='A')]", False),
        ("[play(song='A')]", False),
    ):
        calls = read_calls(reply)
        assert calls is not None
        assert grade_calls(calls, accepted, [play]).correct is right, reply


@pytest.mark.parametrize(
    "reply", ["", "I do not know.", "f(1, 2)", "f(x=open('a'))", "f(**{})", "[" * 5_000, "x = 3", "f(x=(1).__class__)"]
)
def test_replies_without_calls(reply: str) -> None:
    assert read_calls(reply) is None

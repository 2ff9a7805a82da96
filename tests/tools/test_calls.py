"""Test that tool calls are parsed in all formats that models are trained on, and that other replies contain no call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palestra.parsing import CallSpan, first_calls, written_calls

NAMES = ("python", "search", "add")
TAGS = {"python": ("python", "code"), "search": ("search", "query")}
FENCES = {"python": ("python", "code"), "py": ("python", "code")}
ADD: dict[str, Any] = {"name": "add", "arguments": {"a": 1, "b": 2}}


def read(text: str, **kwargs: Any) -> CallSpan | None:
    return first_calls(text, names=NAMES, tags=TAGS, fences=FENCES, **kwargs)


def code(source: str) -> dict[str, Any]:
    return {"name": "python", "arguments": {"code": source}}


@pytest.mark.parametrize(
    ("text", "calls", "form", "rest"),
    [
        ("Let me see.\n<python>print(1)</python> It is 1.", [code("print(1)")], "tag", " It is 1."),
        ("<python>\nfor x in y:\n    pass\n</python>", [code("for x in y:\n    pass")], "tag", ""),
        ("```python\nprint(1)\n```\nok", [code("print(1)")], "fence", "\nok"),
        ("```py\nprint(1)\n```", [code("print(1)")], "fence", ""),
        ("``` Python \nprint(1)\n```", [code("print(1)")], "fence", ""),
        ("<search> who? </search>x", [{"name": "search", "arguments": {"query": "who?"}}], "tag", "x"),
        (f"<tool_call>{json.dumps(ADD)}</tool_call>", [ADD], "tool_call", ""),
        (
            f"so\n<tool_call>\n{json.dumps(ADD)}\n</tool_call>\n<tool_call>{json.dumps(ADD)}</tool_call> x",
            [ADD, ADD],
            "tool_call",
            " x",
        ),
        (
            f"<tool_call>{json.dumps(ADD)}</tool_call> then <tool_call>{{}}</tool_call>",
            [ADD],
            "tool_call",
            " then <tool_call>{}</tool_call>",
        ),
        ('<tool_call>{"name": "python", "arguments": {"code": "a\nb"}}</tool_call>', [code("a\nb")], "tool_call", ""),
        (
            "<tool_call>\n<function=python>\n<parameter=code>\na = 1\n\na\n</parameter>\n</function>\n</tool_call>!",
            [code("a = 1\n\na")],
            "tool_call",
            "!",
        ),
        (
            "ok\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>2</parameter></function> x",
            [{"name": "add", "arguments": {"a": "1", "b": "2"}}],
            "function",
            " x",
        ),
        ('<function=add>{"a": 1, "b": 2}</function>', [ADD], "function", ""),
        ("<function=python></function>", [{"name": "python", "arguments": {}}], "function", ""),
        (f"[TOOL_CALLS] {json.dumps([ADD, ADD])}", [ADD, ADD], "mistral", ""),
        ('[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}', [ADD], "mistral", ""),
        ('[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}', [ADD, ADD], "mistral", ""),
        ('{"name": "add", "parameters": {"a": 1, "b": 2}}', [ADD], "json", ""),
        (
            '<|python_tag|>{"name": "add", "parameters": {"a": 1, "b": 2}}; {"name": "add", "arguments": {}}',
            [ADD, {"name": "add", "arguments": {}}],
            "json",
            "",
        ),
        ("<|python_tag|>print(1)", [code("print(1)")], "python_tag", ""),
        (f"```json\n{json.dumps(ADD)}\n```", [ADD], "json", ""),
        (f"<think><python>no</python></think>\n{json.dumps(ADD)}", [ADD], "json", ""),
        ("<think>maybe <python>1</python> </think>\n<python>2</python>", [code("2")], "tag", ""),
        ("<think>I call it now: <python>2</python>", [code("2")], "tag", ""),
        ("I could write <python> but <search>x</search>", [{"name": "search", "arguments": {"query": "x"}}], "tag", ""),
    ],
)
def test_forms(text: str, calls: list[dict[str, Any]], form: str, rest: str) -> None:
    span = read(text)
    assert span is not None
    assert (list(span.calls), span.form, text[span.end :]) == (calls, form, rest)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\\boxed{5}",
        "python",
        '{"name": "Ada", "born": 1815}',
        '{"answer": 5}',
        "[1, 2]",
        "```json\n{}\n```",
        "```java\nx\n```",
        "```python\nnever closed",
        "<think><python>1</python></think> 5",
        "<pythonic>x</pythonic>",
    ],
)
def test_texts_without_calls(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<python>print(1)", "must end with </python>"),
        ("<tool_call>{", "must end with </tool_call>"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1,}}</tool_call>', "not JSON"),
        ('<tool_call>{"nme": "add"}</tool_call>', '"name" and "arguments"'),
        ("<tool_call>5</tool_call>", '"name" and "arguments"'),
        ('<tool_call>{"name": "add", "arguments": "{broken"}</tool_call>', '"name" and "arguments"'),
        ("[TOOL_CALLS]oops", "not JSON"),
        ("[TOOL_CALLS][{}]", '"name" and "arguments"'),
    ],
)
def test_errors_of_malformed_calls(text: str, message: str) -> None:
    span = read(text)
    assert span is not None
    assert message in span.calls[-1]["error"]


def test_a_reply_that_ends_before_the_closing_tag() -> None:
    span = read("so <python>print(1)\n", unclosed=True)
    assert span is not None
    assert span.calls == (code("print(1)"),)
    assert first_calls("```python\n1", names=NAMES, tags={}, fences=FENCES, unclosed=True) is not None


def test_without_fences_a_block_is_an_answer() -> None:
    assert first_calls("```python\n1\n```", names=NAMES, tags=TAGS, fences={}) is None


@given(
    st.lists(
        st.fixed_dictionaries({"name": st.sampled_from(NAMES), "arguments": st.dictionaries(st.text(), st.text())}),
        min_size=1,
        max_size=4,
    )
)
def test_written_calls_are_parsed(calls: list[dict[str, Any]]) -> None:
    text = written_calls(calls)
    if "</tool_call>" in json.dumps(calls):
        return
    span = read(f"words\n{text}")
    assert span is not None
    assert list(span.calls) == calls


PIECES = [
    "<python>",
    "</python>",
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "```python\n",
    "```",
    "{",
    "}",
    '"name"',
    ":",
    '"add"',
    "<think>",
    "</think>",
    "<|python_tag|>",
    "[",
    ";",
    "\n",
    "x",
]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
@example("<python>" * 100_000)
@example("<tool_call>{" * 100_000)
@example("```python\n" * 100_000)
@example("[TOOL_CALLS]" + "[" * 100_000)
@example("<tool_call>" + "[" * 100_000 + "</tool_call>")
@example("<tool_call>x</tool_call>" * 50_000)
@example("{" * 100_000)
def test_any_text_is_parsed(text: str) -> None:
    span = read(text)
    if span is not None:
        assert 0 < span.end <= len(text)
        assert span.calls
        for call in span.calls:
            assert isinstance(call.get("error"), str) or (
                isinstance(call["name"], str) and isinstance(call["arguments"], dict)
            )

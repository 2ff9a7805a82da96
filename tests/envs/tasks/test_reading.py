"""Test parsing of answers in fenced code blocks and in tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.parsing import fenced, last_code, last_tagged


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("first\n```py\na\n```\nthen\n```\nb\n```", "b"),
        ("```python\na\n```\n```json\n{}\n```", "a"),
        ("```python\na", None),
        ("print(1)", None),
        ("```python\nold\n```python\nnew\n```", "new"),
        ("```python\n    x = 1\n\n    y = 2\n```", "    x = 1\n\n    y = 2"),
    ],
)
def test_the_last_closed_block_counts(text: str, code: str | None) -> None:
    assert last_code(text) == code


@given(st.text().filter(lambda text: "`" not in text and "\r" not in text))
def test_fenced_code_is_found(text: str) -> None:
    assert last_code(f"so:\n{fenced(text)}\n") == text.strip("\n")


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<answer>a</answer> or <answer> b </answer>", "b"),
        ("<answer>a", None),
        ("a</answer>", None),
        ("<answer>a</answer><answer>b", "a"),
    ],
)
def test_the_last_closed_tag_counts(text: str, content: str | None) -> None:
    assert last_tagged(text) == content

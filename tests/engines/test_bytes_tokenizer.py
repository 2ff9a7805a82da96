"""Test ByteTokenizer's round trips and chat template."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.engines import ByteTokenizer
from palestra.errors import BadValue

TOKENIZER = ByteTokenizer()
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
TEXTS = st.lists(st.one_of(st.text(max_size=20), st.sampled_from([*SPECIAL, "<|im", "é", "\u4f60"]))).map("".join)

MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool"]), "content": st.text(max_size=20)}),
    max_size=4,
)
CALLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "look", "arguments": {"at": "the \u2603"}}},
    {"name": "take", "arguments": '{"what": 1}'},
]
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@given(TEXTS)
def test_text_round_trip(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(TEXTS, TEXTS)
def test_joining_texts_joins_ids(left: str, right: str) -> None:
    ids = [*TOKENIZER.encode(left), TOKENIZER.eos_token_id, *TOKENIZER.encode(right)]
    assert TOKENIZER.encode(left + TOKENIZER.eos_token + right) == ids


@given(st.lists(st.integers(0, len(TOKENIZER) - 1)))
def test_random_ids_can_be_decoded(ids: list[int]) -> None:
    bare = TOKENIZER.decode(ids, skip_special_tokens=True)
    assert isinstance(bare, str)
    assert len(bare) <= len(TOKENIZER.decode(ids))


def test_special_tokens_are_single_ids() -> None:
    assert TOKENIZER.encode("a<|im_end|>\n") == [97, TOKENIZER.eos_token_id, 10]
    assert TOKENIZER.decode([97, TOKENIZER.eos_token_id, 98], skip_special_tokens=True) == "ab"
    assert TOKENIZER.decode(TOKENIZER.eos_token_id) == "<|im_end|>"


def test_id_out_of_range_raises() -> None:
    with pytest.raises(BadValue, match="token id must be in 0..258, got 259"):
        TOKENIZER.decode([259])


@cache
def template() -> jinja2.Template:
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return env.from_string(TOKENIZER.chat_template)


def rendered(messages: list[dict[str, Any]], **variables: Any) -> str:
    """Render the chat template with Jinja, as transformers does."""
    return template().render(messages=messages, **variables)


@given(MESSAGES, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_chat_template_equals_jinja_rendering(
    messages: list[dict[str, Any]], system: bool, calls: bool, tools: bool, generate: bool
) -> None:
    if system:
        messages = [{"role": "system", "content": "Be brief."}, *messages]
    if calls:
        messages = [*messages, {"role": "assistant", "content": None, "tool_calls": CALLS}]
    options: dict[str, Any] = {"tools": TOOLS if tools else None, "add_generation_prompt": generate}
    text = TOKENIZER.apply_chat_template(messages, tokenize=False, **options)
    assert text == rendered(messages, **options)


def test_chat_template_returns_text_or_ids() -> None:
    chat = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    text = TOKENIZER.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    ids = TOKENIZER.apply_chat_template(chat, add_generation_prompt=True)
    assert TOKENIZER.decode(ids) == text
    whole = TOKENIZER.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)
    assert whole == {"input_ids": ids, "attention_mask": [1] * len(ids)}


def test_other_template_raises() -> None:
    with pytest.raises(BadValue, match="only its own template"):
        TOKENIZER.apply_chat_template([], chat_template="{{ messages }}")

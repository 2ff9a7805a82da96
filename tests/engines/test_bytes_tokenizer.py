"""The byte tokenizer: exact both ways, and the template it shows is the one it renders."""

from __future__ import annotations

import json
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
def test_every_text_survives(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(TEXTS, TEXTS)
def test_joining_texts_joins_ids(left: str, right: str) -> None:
    ids = [*TOKENIZER.encode(left), TOKENIZER.eos_token_id, *TOKENIZER.encode(right)]
    assert TOKENIZER.encode(left + TOKENIZER.eos_token + right) == ids


@given(st.lists(st.integers(0, len(TOKENIZER) - 1)))
def test_any_ids_can_be_read(ids: list[int]) -> None:
    bare = TOKENIZER.decode(ids, skip_special_tokens=True)
    assert isinstance(bare, str)
    assert len(bare) <= len(TOKENIZER.decode(ids))


def test_specials_are_single_ids_inside_a_text() -> None:
    assert TOKENIZER.encode("a<|im_end|>\n") == [97, TOKENIZER.eos_token_id, 10]
    assert TOKENIZER.decode([97, TOKENIZER.eos_token_id, 98], skip_special_tokens=True) == "ab"
    assert TOKENIZER.decode(TOKENIZER.eos_token_id) == "<|im_end|>"


def test_an_id_beyond_the_last_is_refused() -> None:
    with pytest.raises(BadValue, match="token id must be in 0..258, got 259"):
        TOKENIZER.decode([259])


def rendered(messages: list[dict[str, Any]], **variables: Any) -> str:
    """With Jinja, as transformers does it."""
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return env.from_string(TOKENIZER.chat_template).render(messages=messages, **variables)


@given(MESSAGES, st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_its_template_says_what_it_does(
    messages: list[dict[str, Any]], system: bool, calls: bool, tools: bool, generate: bool
) -> None:
    if system:
        messages = [{"role": "system", "content": "Be brief."}, *messages]
    if calls:
        messages = [*messages, {"role": "assistant", "content": None, "tool_calls": CALLS}]
    options: dict[str, Any] = {"tools": TOOLS if tools else None, "add_generation_prompt": generate}
    ours = TOKENIZER.apply_chat_template(messages, tokenize=False, **options)
    assert ours == rendered(messages, **options)


def test_a_chat_becomes_text_or_ids() -> None:
    chat = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    text = TOKENIZER.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    ids = TOKENIZER.apply_chat_template(chat, add_generation_prompt=True)
    assert TOKENIZER.decode(ids) == text
    whole = TOKENIZER.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)
    assert whole == {"input_ids": ids, "attention_mask": [1] * len(ids)}


def test_another_template_is_refused() -> None:
    with pytest.raises(BadValue, match="only its own template"):
        TOKENIZER.apply_chat_template([], chat_template="{{ messages }}")

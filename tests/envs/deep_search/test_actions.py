"""Test that actions in replies are parsed correctly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.envs.deep_search.actions import ANSWER, OPEN, SEARCH, SearchAction, format_action, read_action

KINDS = st.sampled_from([SEARCH, OPEN, ANSWER])
PIECES = st.sampled_from(
    ["<think>", "</think>", "<search>", "</search>", "<open>", "</OPEN>", "<answer>", "</answer>", "x", "<", ">", "\n"]
)
PLAIN = st.text(st.characters(exclude_characters="<>"))


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("<search>red ants</search>", (SEARCH, "red ants")),
        ("<think>I will look.</think>\n<open> The Ants </open>", (OPEN, "The Ants")),
        ("<THINK>a</THINK><Answer>Paris</Answer>", (ANSWER, "Paris")),
        # actions inside the thinking block are ignored, even if the template opened the block
        ("<think>maybe <search>a</search>, no</think><search>b</search>", (SEARCH, "b")),
        ("maybe <search>a</search>, no</think><search>b</search>", (SEARCH, "b")),
        # search results that the model invents after the first action are ignored
        ("<search>a</search><information>A</information><answer>A</answer>", (SEARCH, "a")),
        ("<think>x</think><search>a</search><think>y</think><answer>A</answer>", (SEARCH, "a")),
        # a thinking block that is never closed is treated as ordinary text
        ("<think>I know it: <answer>A</answer>", (ANSWER, "A")),
        # engines that stop at the closing tag omit it
        ("<think>x</think><search>red ants", (SEARCH, "red ants")),
        ("<search>red <answer>A</answer>", (ANSWER, "A")),
        ("<search>red <search>ants</search>", (SEARCH, "ants")),
        ("<search></search>", (SEARCH, "")),
        ("</search><answer>A</answer>", (ANSWER, "A")),
        # a boxed answer needs no tags
        (r"<think>x</think>The capital is \boxed{Paris}.", (ANSWER, "Paris")),
    ],
)
def test_the_parsed_action(reply: str, action: tuple[str, str]) -> None:
    assert read_action(reply) == SearchAction(*action)


@pytest.mark.parametrize(
    "reply",
    ["", "Paris", "\\boxed{", r"<think>\boxed{A}</think>", "<think>a</think>", "</answer>", "<lookup>a</lookup>"],
)
def test_replies_without_an_action(reply: str) -> None:
    assert read_action(reply) is None


@given(KINDS, PLAIN, PLAIN, st.lists(PIECES, max_size=12).map("".join))
def test_parsing_inverts_formatting(kind: str, text: str, thought: str, behind: str) -> None:
    assert read_action(format_action(kind, text, thought or "hm") + behind) == SearchAction(kind, text.strip())


@given(st.lists(PIECES, max_size=40))
def test_any_reply_can_be_parsed(pieces: list[str]) -> None:
    reply = "".join(pieces)
    action = read_action(reply)
    if action is not None:
        assert action.kind in (SEARCH, OPEN, ANSWER)
        assert f"<{action.kind}>" in reply
        assert action.text in reply


def test_many_tags_are_parsed_in_linear_time() -> None:
    assert read_action("<think>" * 200_000) is None
    assert read_action("<search>" * 100_000 + "</think>" * 100_000) is None
    assert read_action("<think></think>" * 100_000 + "<answer>A</answer>") == SearchAction(ANSWER, "A")

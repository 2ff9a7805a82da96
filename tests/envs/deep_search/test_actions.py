"""Which action a reply holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.envs.deep_search.actions import ANSWER, OPEN, SEARCH, Move, read_action, written

KINDS = st.sampled_from([SEARCH, OPEN, ANSWER])
PIECES = st.sampled_from(
    ["<think>", "</think>", "<search>", "</search>", "<open>", "</OPEN>", "<answer>", "</answer>", "x", "<", ">", "\n"]
)
PLAIN = st.text(st.characters(exclude_characters="<>"))


@pytest.mark.parametrize(
    ("reply", "move"),
    [
        ("<search>red ants</search>", (SEARCH, "red ants")),
        ("<think>I will look.</think>\n<open> The Ants </open>", (OPEN, "The Ants")),
        ("<THINK>a</THINK><Answer>Paris</Answer>", (ANSWER, "Paris")),
        # what is weighed in thought is not done, also where the template opened the thinking
        ("<think>maybe <search>a</search>, no</think><search>b</search>", (SEARCH, "b")),
        ("maybe <search>a</search>, no</think><search>b</search>", (SEARCH, "b")),
        # what a model goes on to imagine does not count
        ("<search>a</search><information>A</information><answer>A</answer>", (SEARCH, "a")),
        ("<think>x</think><search>a</search><think>y</think><answer>A</answer>", (SEARCH, "a")),
        # thinking that never ends is read
        ("<think>I know it: <answer>A</answer>", (ANSWER, "A")),
        # engines that stop at the closing tag leave it out
        ("<think>x</think><search>red ants", (SEARCH, "red ants")),
        ("<search>red <answer>A</answer>", (ANSWER, "A")),
        ("<search>red <search>ants</search>", (SEARCH, "ants")),
        ("<search></search>", (SEARCH, "")),
        ("</search><answer>A</answer>", (ANSWER, "A")),
    ],
)
def test_what_counts(reply: str, move: tuple[str, str]) -> None:
    assert read_action(reply) == Move(*move)


@pytest.mark.parametrize(
    "reply", ["", "Paris", r"\boxed{Paris}", "<think>a</think>", "</answer>", "<lookup>a</lookup>"]
)
def test_what_is_no_action(reply: str) -> None:
    assert read_action(reply) is None


@given(KINDS, PLAIN, PLAIN, st.lists(PIECES, max_size=12).map("".join))
def test_an_action_is_read_as_it_was_written(kind: str, text: str, thought: str, behind: str) -> None:
    assert read_action(written(kind, text, thought or "hm") + behind) == Move(kind, text.strip())


@given(st.lists(PIECES, max_size=40))
def test_any_reply_is_read(pieces: list[str]) -> None:
    reply = "".join(pieces)
    move = read_action(reply)
    if move is not None:
        assert move.kind in (SEARCH, OPEN, ANSWER)
        assert f"<{move.kind}>" in reply
        assert move.text in reply


def test_a_wall_of_tags_is_read_in_a_moment() -> None:
    assert read_action("<think>" * 200_000) is None
    assert read_action("<search>" * 100_000 + "</think>" * 100_000) is None
    assert read_action("<think></think>" * 100_000 + "<answer>A</answer>") == Move(ANSWER, "A")

"""Test actions that give an element by its name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.browser.actions import ARGUMENTS, BadAction, parse_action
from palestra.browser.names import element_named, is_named_action, name_to_number, number_to_name
from palestra.browser.observation import Node

PAGE = (
    Node(1, "RootWebArea", "Page", {}, 0),
    Node(2, "StaticText", "Submit", {}, 1),
    Node(3, "textbox", "", {}, 1),
    Node(4, "button", "Submit", {}, 1),
    Node(5, "button", "Submit", {}, 1),
    Node(6, "link", "Sign in", {}, 1),
    Node(7, "button", "a [b]", {}, 1),
)


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("click Submit", "click [4]"),  # the first button, not the text before it
        ("click Sign in", "click [6]"),
        ("I sign in.\nAction: click Sign in", "click [6]"),
        ("fill textbox [some text]", "fill [3] [some text]"),
        ("type textbox [some text] [1]", "type [3] [some text] [1]"),
        ("double_click Submit", "double_click [4]"),
        ("click [4]", "click [4]"),
        ("press [Enter]", "press [Enter]"),
        ("scroll down", "scroll down"),  # the first argument is not an element
        ("click('4')", "click('4')"),
        ("", ""),
    ],
)
def test_names_become_numbers(reply: str, action: str) -> None:
    assert name_to_number(reply, PAGE) == action
    assert is_named_action(reply) == (reply != action)


def test_unknown_names_are_explained() -> None:
    with pytest.raises(BadAction, match="no element named 'Cancel'"):
        name_to_number("click Cancel", PAGE)


@pytest.mark.parametrize(
    ("action", "named"),
    [
        ("click [4]", "click Submit"),
        ("fill [3] [text]", "fill textbox [text]"),
        ("click [5]", "click [5]"),  # the name would select another element
        ("click [2]", "click [2]"),
        ("click [7]", "click [7]"),  # brackets cannot be written in a name
        ("drag [4] [5]", "drag [4] [5]"),
        ("click [99]", "click [99]"),
        ("press [Enter]", "press [Enter]"),
    ],
)
def test_numbers_become_names(action: str, named: str) -> None:
    assert number_to_name(action, PAGE) == named


names = st.text("ab []()'\"\n.1", max_size=4)
pages = st.lists(st.tuples(st.sampled_from(["button", "textbox", "StaticText"]), names), min_size=1, max_size=6)


@given(pages, st.data())
def test_the_name_of_an_element_leads_back_to_it(content: list[tuple[str, str]], data: st.DataObject) -> None:
    nodes = [Node(i, role, name, {}, 1) for i, (role, name) in enumerate(content, 1)]
    number = data.draw(st.integers(1, len(nodes)))
    for action in (f"click [{number}]", f"fill [{number}] [some text]"):
        named = number_to_name(action, nodes)
        assert parse_action(name_to_number(named, nodes)) == parse_action(action)
        node = nodes[number - 1]
        if node.role == "button" and node.name and set(node.name) <= set("ab1"):
            assert is_named_action(named) == (element_named(nodes, node.name) is node)


def test_every_action_with_one_element_can_be_named() -> None:
    for action, kinds in ARGUMENTS.items():
        assert is_named_action(f"{action} Submit") == (kinds[:1] == ("id",) and "id" not in kinds[1:])

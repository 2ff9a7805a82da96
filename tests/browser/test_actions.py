"""Test that both action grammars are parsed into the same commands, and that error messages explain invalid actions."""

from __future__ import annotations

import pytest

from palestra.browser.actions import BadAction, Command, parse_action
from palestra.browser.keyboard import key_events, parse_keys
from palestra.conformance.hostile_actions import HOSTILE_ACTIONS

SAME = [  # WebArena's form, BrowserGym's form, command
    ("click [12]", "click('12')", Command("click", (12,))),
    ("dblclick [3]", "dblclick('3')", Command("dblclick", (3,))),
    ("hover [3]", "hover('3')", Command("hover", (3,))),
    ("type [5] [two words] [0]", "type('5', 'two words')", Command("type", (5, "two words", False))),
    ("type [5] [a] [1]", "type('5', 'a', 1)", Command("type", (5, "a", True))),
    ("fill [5] [a, b]", "fill('5', 'a, b')", Command("fill", (5, "a, b"))),
    ("select [4] [Red]", "select_option('4', 'Red')", Command("select", (4, ("Red",)))),
    ("drag [1] [2]", "drag_and_drop('1', '2')", Command("drag", (1, 2))),
    ("press [Control+a]", "keyboard_press('Control+a')", Command("press", ("Control+a",))),
    ("mouse_click [10] [20.5]", "mouse_click(10, 20.5)", Command("mouse_click", (10.0, 20.5))),
    ("goto [http://shop.test/a?b=1]", "goto('http://shop.test/a?b=1')", Command("goto", ("http://shop.test/a?b=1",))),
    ("tab_focus [1]", "tab_focus(1)", Command("tab_focus", (1,))),
    ("close_tab", "tab_close()", Command("close_tab")),
    ("new_tab", "new_tab()", Command("new_tab")),
    ("go_back", "go_back()", Command("go_back")),
    ("stop [42]", "send_msg_to_user('42')", Command("stop", ("42",))),
    ("stop [N/A]", "report_infeasible('no such page')", Command("stop", ("N/A",))),
    ("wait [2]", "noop(2000)", Command("wait", (2.0,))),
]


@pytest.mark.parametrize(("webarena", "browsergym", "command"), SAME)
def test_both_grammars(webarena: str, browsergym: str, command: Command) -> None:
    assert parse_action(webarena) == parse_action(browsergym) == command


@pytest.mark.parametrize(
    ("reply", "command"),
    [
        ("type [7] [blue kayak]", Command("type", (7, "blue kayak"))),  # presses Enter, unless [0] follows
        ("type [164] [a [b] c] [1]", Command("type", (164, "a [b] c", True))),
        ("scroll [direction=down]", Command("scroll", ("down",))),
        ("scroll(0, 200)", Command("scroll_by", (0.0, 200.0))),
        ("press('12', 'Enter')", Command("press_on", (12, "Enter"))),
        ("select_option('4', ['a', 'b'])", Command("select", (4, ("a", "b")))),
        ("click('12', button='left')", Command("click", (12,))),
        ("Let's think. In summary, the next action I will perform is ```click [1234]```", Command("click", (1234,))),
        ("I should log in.\nAction: fill('3', 'it\\'s me')", Command("fill", (3, "it's me"))),
        ("<think>click [1]</think>\nclick [2]", Command("click", (2,))),
        ("I press it.\n`click [2]`", Command("click", (2,))),
        ("Action:\n```\ngo_back\n```", Command("go_back")),
    ],
)
def test_replies(reply: str, command: Command) -> None:
    assert parse_action(reply) == command


@pytest.mark.parametrize(
    ("reply", "part"),
    [
        ("", "contains no action"),
        ("I do not know", "is not an action"),
        ("clik [3]", "Did you mean click?"),
        ("click [abc]", "number of an element"),
        ("click", "click takes 1 argument: click [id]"),
        ("type [3]", "type [id] [text] [1]"),
        ("scroll [sideways]", "scroll [up]"),
        ("fill('3', open('x'))", "not a valid call"),
        ("mouse_click [a] [b]", "needs a number"),
    ],
)
def test_mistakes_are_explained(reply: str, part: str) -> None:
    with pytest.raises(BadAction) as caught:
        parse_action(reply)
    assert part in str(caught.value)


def test_any_text_is_a_command_or_a_mistake() -> None:
    for _, action in HOSTILE_ACTIONS:
        with pytest.raises(BadAction) as caught:
            parse_action(action)
        assert len(str(caught.value)) < 1_000


def test_keys() -> None:
    assert parse_keys("Control+Shift+T") == (10, "T")
    assert parse_keys("ctrl++") == (2, "+")
    assert [event["type"] for _, event in key_events(0, "Enter")] == ["keyDown", "keyUp"]
    with pytest.raises(BadAction, match="not a key"):
        parse_keys("Enterr")
    with pytest.raises(BadAction, match="not a modifier"):
        parse_keys("Hyper+a")

"""Test that `can_read` agrees with `step`, because `palestra play` asks again for an action that cannot be read."""

from __future__ import annotations

import pytest

import palestra
from palestra.browser.actions import is_action
from palestra.wrappers import Tools

IDS = ["babyai:GoToRedBall-v0", "game:Sudoku-v0-easy", "math:Arithmetic-v0-easy", "sql:Shop-v0", "textcraft:Depth1-v0"]


@pytest.mark.parametrize("env_id", IDS)
def test_unreadable_actions_are_recognized_without_a_step(env_id: str) -> None:
    with palestra.make(env_id) as env:
        env.reset(seed=0)
        for action in ("no action", "", env.example_action()):
            assert env.can_read(action) == (env.fork().step(action).info.get("invalid") != "format")
        assert env.can_read(env.example_action())
        assert not env.can_read("no action")


def test_tool_calls_are_readable_in_a_game() -> None:
    def double(x: int) -> int:
        """Return twice the number."""
        return 2 * x

    with Tools(palestra.make("game:Sudoku-v0-easy"), [double]) as env:
        env.reset(seed=0)
        assert env.can_read('<tool_call>{"name": "double", "arguments": {"x": 4}}</tool_call>')
        assert env.can_read(env.example_action())
        assert not env.can_read("no action")


@pytest.mark.parametrize(("reply", "readable"), [("click [12]", True), ("click", False), ("what now?", False)])
def test_actions_in_a_browser(reply: str, readable: bool) -> None:
    assert is_action(reply) == readable

"""Check that every family accepts common formats of a correct answer and rejects near-misses (see answer_forms.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import cast

import pytest

import palestra
from palestra.core import Env
from palestra.envs.deep_search.actions import read_action as read_search_action
from palestra.envs.logic.rules import Rules
from palestra.envs.logic.statements import parse_label
from palestra.envs.multi_turn import parse_command
from palestra.envs.rg.dataset import ReasoningGym
from palestra.envs.sql.env import read_action as read_sql_action
from palestra.envs.tasks.base import Item
from palestra.envs.webshop.env import read_action as read_shop_action
from palestra.grading import grade_math, grade_qa
from palestra.parsing import boxed, plain, read_answer, read_command, read_program
from tests.answer_forms import RG, ROWS


def is_math(reply: str, gold: str) -> bool:
    answer = read_answer(reply)
    return answer is not None and grade_math(answer, gold).correct


def is_qa(reply: str, gold: str) -> bool:
    answer = read_answer(reply)
    return answer is not None and grade_qa(answer, gold).correct


def is_label(reply: str, gold: str) -> bool:
    answer = read_answer(reply)
    if answer is None:
        return False
    task = Rules(world="open")
    task.item = Item(question="", answer=gold)
    correct = task.grade(answer).correct
    assert (parse_label(answer) == gold) is correct  # environments with datasets use parse_label
    return correct


@lru_cache
def new_game(name: str) -> Env:
    env = palestra.make(f"game:{name}")
    env.reset(seed=7)
    return env


def is_move(reply: str, reference: str) -> bool:
    name, _, move = reference.partition(": ")
    game = new_game(name)
    expected = game.fork().step(boxed(move))
    assert expected.info.get("invalid") != "format"
    return game.fork().step(reply) == expected


def is_command(reply: str, command: str) -> bool:
    correct = parse_command(reply) == command
    if correct:
        assert read_command(reply).lower().strip(" .[]>") == command  # ScienceWorld
    return correct


def is_shop_action(reply: str, reference: str) -> bool:
    action = read_shop_action(reply)
    return action is not None and f"{action[0]}: {plain(action[1])}" == reference


def is_search_action(reply: str, reference: str) -> bool:
    action = read_search_action(reply)
    return action is not None and f"{action.kind}: {action.text}" == reference


def is_sql_action(reply: str, reference: str) -> bool:
    action = read_sql_action(reply)
    return action is not None and f"{action[0]}: {action[1]}" == reference


def is_program(reply: str, reference: str) -> bool:
    name, _, line = reference.partition(": ")
    program = read_program(reply, (name,) if name else ())
    return program is not None and line in program


FAMILIES: dict[str, Callable[[str, str], bool]] = {
    "math": is_math,
    "qa": is_qa,
    "logic": is_label,
    "game": is_move,
    "command": is_command,
    "webshop": is_shop_action,
    "search": is_search_action,
    "sql": is_sql_action,
    "code": is_program,
}


def test_the_table_is_large() -> None:
    rows = [*ROWS, *RG]
    assert len(set(rows)) == len(rows) >= 400
    assert sum(not accepted for *_, accepted in rows) >= 100


@pytest.mark.parametrize(("family", "reply", "reference", "accepted"), ROWS)
def test_forms(family: str, reply: str, reference: str, accepted: bool) -> None:
    assert FAMILIES[family](reply, reference) is accepted


@lru_cache
def new_item(name: str) -> ReasoningGym:
    env = cast(ReasoningGym, palestra.make(f"rg:{name}"))
    env.reset(seed=3)
    return env


@pytest.mark.parametrize(("family", "reply", "name", "accepted"), RG)
def test_reasoning_gym_forms(family: str, reply: str, name: str, accepted: bool) -> None:
    assert family == "rg"
    env = new_item(name).fork()
    step = env.step(reply.replace("ANSWER", env.item.answer))
    assert step.info["success"] is accepted


@pytest.mark.parametrize(
    ("env_id", "action", "forms"),
    [
        ("babyai:GoTo-v0", "turn left", [r"\boxed{\text{turn left}}", "```\nturn left\n```", "**turn left**"]),
        ("textcraft:Depth1-v0", "get 2 cobblestone", [r"\boxed{get 2 cobblestone}", "Action: `get 2 cobblestone`"]),
        ("webshop:Shop-v0", "search[wool]", [r"\boxed{\text{search}[wool]}", "search[**wool**]", 'search["wool"]']),
        ("search:World-v0-1hop", "<search>river</search>", ["<search>**river**</search>", "`<search>river</search>`"]),
    ],
)
def test_marked_up_actions_have_the_same_result(env_id: str, action: str, forms: list[str]) -> None:
    env = palestra.make(env_id)
    env.reset(seed=7)
    expected = env.fork().step(action)
    assert "invalid" not in expected.info
    for form in forms:
        assert env.fork().step(form) == expected


def test_marked_up_clicks_and_titles() -> None:
    shop = palestra.make("webshop:Shop-v0")
    shop.reset(seed=7)
    product = shop.step("search[wool]").info["clickables"][-1]
    expected = shop.fork().step(f"click[{product}]")
    assert "invalid" not in expected.info
    for form in (f"click['{product}']", f"click[**{product}**]", f"**click**[{product}]", f"click[{product.lower()}]"):
        assert shop.fork().step(form) == expected


def test_a_program_with_an_example_is_graded() -> None:
    env = palestra.make("code:Puzzles-v0-easy")
    env.reset(seed=7)
    expert = env.expert_action()
    assert expert is not None
    for behind in ("Example:\n```python\nprint(solve(1))\n```", "Output:\n```\n2\n```"):
        assert env.fork().step(f"{expert}\n{behind}").reward == 1.0
    assert env.fork().step(f"{expert}\nNo:\n```python\ndef solve(*args):\n    return None\n```").reward == 0.0

"""Test queries, answers, grading and invalid actions in the SQL environments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.envs.sql.env import GeneratedSql, read_action
from palestra.envs.sql.grade import same
from palestra.envs.sql.guard import Limits, Result, run
from palestra.errors import BadValue


def test_an_episode() -> None:
    env = palestra.make("sql:Shop-v0")
    prompt, info = env.reset(seed=1)
    assert isinstance(prompt, str)
    assert all(table in prompt for table in ("customers", "products", "orders", "order_items"))
    assert "CREATE TABLE" not in prompt
    assert info["tables"] == ["customers", "products", "orders", "order_items"]
    step = env.step("Let me see.\n<sql>PRAGMA table_info(customers)</sql>")
    assert "joined_on" in str(step.observation)
    step = env.step("<sql>SELECT customer_id FROM customers</sql>")
    assert "(the first 10 rows; there are more)" in str(step.observation)
    step = env.step("<sql>SELECT COUNT(*) AS n FROM customers</sql>")
    assert step.observation == "n\n40\n(1 row)"
    step = env.step(f"<answer>{env.question.gold};</answer>")  # type: ignore[attr-defined]
    assert (step.reward, step.terminated, step.info["success"], step.info["ending"]) == (1.0, True, True, "solved")


@pytest.mark.parametrize("domain", ["shop", "library", "school", "flights", "hospital"])
@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_equivalent_queries_pass_and_hard_coded_results_fail(domain: str, level: str) -> None:
    env = GeneratedSql(domain=domain, level=level)
    questions = set()
    for seed in range(12):
        env.reset(seed=seed)
        assert env.question.level == level
        questions.add(env.question.gold)
        other = env.fork()
        assert env.step(f"<answer>{env.question.alternative}</answer>").reward == 1.0
        rows = run(env.databases[0], env.question.gold, Limits()).rows
        assert rows
        cells = [", ".join("NULL" if c is None else repr(c) for c in row) for row in rows]
        step = other.step(f"<answer>VALUES {', '.join(f'({row})' for row in cells)}</answer>")
        assert (step.reward, step.info["success"]) == (0.0, False)
        assert "copy of the database with different data" in step.info["why"]
    assert len(questions) > 4


def test_a_hard_coded_key_fails() -> None:
    """A query with the customer's id instead of the name is correct only on the original database."""
    env = GeneratedSql(domain="shop", level="medium")
    for seed in range(60):
        env.reset(seed=seed)
        if "How many orders did" in env.question.text:
            break
    name, year = env.question.text.removeprefix("How many orders did ").split(" place in ")
    key = run(env.databases[0], f"SELECT customer_id FROM customers WHERE name = '{name}'", Limits()).rows[0][0]
    step = env.step(
        f"<answer>SELECT COUNT(*) FROM orders WHERE customer_id = {key} AND ordered_on LIKE '{year[:4]}%'</answer>"
    )
    assert step.reward == 0.0
    assert "copy" in step.info["why"]


@pytest.mark.parametrize(
    ("action", "invalid", "expected"),
    [
        ("", "format", "<sql>...</sql>"),
        ("SELECT 1", "format", "<answer>...</answer>"),
        ("<sql></sql>", "rule", "not a query"),
        ("<sql>SELEC 1</sql>", "rule", "syntax error"),
        ("<sql>DROP TABLE orders</sql>", "rule", "only read access"),
        ("<sql>SELECT * FROM order</sql>", "rule", "syntax error"),
        ("<sql>SELECT 1; SELECT 2</sql>", "rule", "one statement"),
    ],
)
def test_bad_actions_get_feedback(action: str, invalid: str, expected: str) -> None:
    env = palestra.make("sql:Shop-v0")
    env.reset(seed=1)
    step = env.step(action)
    assert (step.info["invalid"], step.reward, step.done) == (invalid, 0.0, False)
    assert expected in str(step.observation)


@pytest.mark.parametrize("answer", ["", "hello", "DROP TABLE customers", "SELECT 1; SELECT 2", "SELECT NULL"])
def test_a_wrong_answer_ends_the_episode_without_reward(answer: str) -> None:
    env = palestra.make("sql:Shop-v0")
    env.reset(seed=1)
    step = env.step(f"<answer>{answer}</answer>")
    assert (step.reward, step.terminated, step.info["success"], step.info["ending"]) == (0.0, True, False, "lost")


def test_turns_run_out() -> None:
    env = palestra.make("sql:Shop-v0", max_turns=2)
    env.reset(seed=1)
    env.step("<sql>SELECT 1</sql>")
    step = env.step("<sql>SELECT 1</sql>")
    assert (step.terminated, step.info["ending"]) == (True, "out_of_turns")


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("<sql>SELECT 1</sql>", ("sql", "SELECT 1")),
        ("<SQL>\n```sql\nSELECT 1\n```\n</SQL>", ("sql", "SELECT 1")),
        ("<answer>SELECT 1</answer> or <sql>SELECT 2</sql>", ("sql", "SELECT 2")),
        ("<sql>SELECT 2</sql> so <answer>SELECT '<b>'</answer> done", ("answer", "SELECT '<b>'")),
        ("<think>x</think><answer>SELECT 1", ("answer", "SELECT 1")),
        ("Let us see:\n```sql\nSELECT 3\n```", ("sql", "SELECT 3")),
        ("```python\nprint(1)\n```", None),
        ("SELECT 1", None),
        ("</sql>", None),
    ],
)
def test_actions_are_parsed(reply: str, action: tuple[str, str] | None) -> None:
    assert read_action(reply) == action


@given(st.text(alphabet="<>/sqlanwer` \n", max_size=120))
def test_any_reply_can_be_parsed(reply: str) -> None:
    action = read_action(reply)
    assert action is None or action[0] in ("sql", "answer")


def result(*rows: tuple[Any, ...]) -> Result:
    return Result(columns=("a",), rows=rows)


def test_comparison_of_results() -> None:
    assert same(result((1,), (2,)), result((2,), (1,)), "bag")
    assert not same(result((1,), (2,)), result((2,), (1,)), "list")
    assert not same(result((1,), (1,)), result((1,)), "bag")
    assert same(result((1,), (1,)), result((1,)), "set")
    assert same(result((1,)), result((1.0,)), "list")
    assert same(result((0.1 + 0.2,)), result((0.3,)), "bag")
    assert not same(result((0.3001,)), result((0.3,)), "bag")
    assert not same(result(("1",)), result((1,)), "bag")
    assert not same(result((None,)), result((0,)), "bag")
    assert not same(result((1, 2)), result((2, 1)), "bag")
    assert not same(result((1,)), result((1, 1)), "bag")


@given(st.lists(st.tuples(st.one_of(st.none(), st.integers(-3, 3), st.sampled_from("ab"), st.binary(max_size=1)))))
def test_a_bag_ignores_order(rows: list[tuple[Any, ...]]) -> None:
    assert same(result(*rows), result(*reversed(rows)), "bag")
    assert same(result(*rows), result(*rows), "list")


def test_the_prompt_can_include_the_schema() -> None:
    env = palestra.make("sql:Library-v0", show_schema=True)
    prompt, _ = env.reset(seed=1)
    assert str(prompt).count("CREATE TABLE") == 4


def test_rendering() -> None:
    env = palestra.make("sql:Flights-v0")
    assert env.render() is None
    env.reset(seed=1)
    text = str(env.render())
    assert "Question:" in text
    assert "elevation_m" in text
    assert env.render("image") is None


def test_episodes_with_the_same_seed_share_a_database() -> None:
    one, other = palestra.make("sql:Shop-v0"), palestra.make("sql:Shop-v0")
    one.reset(seed=12)
    other.reset(seed=12)
    assert one.databases is other.databases  # type: ignore[attr-defined]


def test_wrong_arguments_raise() -> None:
    with pytest.raises(BadValue, match="`domain` must be one of"):
        palestra.make("sql:Mixed-v0", domain="bank")
    with pytest.raises(BadValue, match="`level` must be one of"):
        palestra.make("sql:Mixed-v0", level="impossible")
    with pytest.raises(BadValue, match="copies"):
        palestra.make("sql:Mixed-v0", copies=0)
    with pytest.raises(BadValue, match="reset options"):
        palestra.make("sql:Mixed-v0").reset(options={"index": 1})

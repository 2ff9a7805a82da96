"""Test random schemas: valid databases, and questions whose two queries agree."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from random import Random

import pytest

import palestra
from palestra.envs.sql.domain import LEVELS
from palestra.envs.sql.env import GeneratedSql
from palestra.envs.sql.grade import Compare, same
from palestra.envs.sql.guard import Limits, run
from palestra.envs.sql.random_schema.schema import Schema, an, make_schema
from palestra.envs.sql.random_schema.simple import Form
from palestra.envs.sql.random_schema.source import FORMS, RandomSchema
from palestra.envs.sql.random_schema.vocabulary import THEMES, plural

ASKS = [(level, ask) for level, asks in FORMS.items() for ask in asks]


def test_schemas_differ_and_are_reproducible() -> None:
    schemas = [make_schema(Random(seed), None) for seed in range(60)]
    assert len({schema.ddl for schema in schemas}) == 60
    assert make_schema(Random(7), None).ddl == schemas[7].ddl
    assert {len(schema.tables) for schema in schemas} == {4, 5}
    assert len({schema.place.sql for schema in schemas}) > 25
    assert any(schema.unit.optional for schema in schemas)
    assert any("_" not in schema.unit.parent_key for schema in schemas)


@pytest.mark.parametrize("seed", range(8))
def test_databases_are_valid_and_copies_differ(seed: int) -> None:
    source = RandomSchema(seed, None)
    table = source.schema.event.sql
    rows = []
    for copy in range(5):
        connection = source.build(seed, copy, "SELECT 1 WHERE 2022 > 5").connect()
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        rows.append(set(connection.execute(f"SELECT * FROM {table}")))
        connection.close()
    assert all(len(rows[0] & other) < len(rows[0]) / 2 for other in rows[1:])
    assert source.build(seed, 3, "SELECT 1") == RandomSchema(seed, None).build(seed, 3, "SELECT 1")


@pytest.mark.parametrize(("level", "ask"), ASKS, ids=[ask.__name__ for _, ask in ASKS])
def test_equivalent_queries_agree(level: str, ask: Callable[[Random, Schema], Form]) -> None:
    questions, filled = set(), 0
    for seed in range(6):
        source = RandomSchema(seed, None)
        for draw in range(2):
            form = ask(Random(draw), source.schema)
            questions.add(form.text)
            compare: Compare = "list" if form.ordered else "bag"
            for copy in (0, 2, 3):
                database = source.build(seed, copy, form.gold)
                gold, other = run(database, form.gold, Limits()), run(database, form.alternative, Limits())
                assert gold.error == other.error == "", form
                assert same(gold, other, compare), (form, gold.rows, other.rows)
                filled += bool(gold.rows)
    assert len(questions) > 8
    assert filled > 6, level


def test_questions_ask_about_columns_and_constants_of_the_query() -> None:
    """Every number of at least two digits and every name in a question also occurs in its query."""
    for level, ask in ASKS:
        form = ask(Random(3), RandomSchema(11, None).schema)
        words = form.text.replace("?", " ").replace(".", " ").replace(",", " ").split()
        constants = [word for word in words if word.isdigit() and len(word) > 1]
        assert all(word in form.gold for word in constants), (level, form)


@pytest.mark.parametrize("level", LEVELS)
def test_episodes(level: str) -> None:
    env = palestra.make(f"sql:Random-v0-{level}")
    assert isinstance(env, GeneratedSql)
    prompts = set()
    for seed in range(8):
        prompt, info = env.reset(seed=seed)
        prompts.add(prompt)
        assert info["level"] == level
        assert all(name in str(prompt) for name in info["tables"])
        other = env.fork()
        assert other.step(f"<answer>{env.question.alternative}</answer>").reward == 1.0
        env.step(env.expert_action() or "")
        assert env.step(env.expert_action() or "").reward == 1.0
    assert len(prompts) == 8


def test_nouns() -> None:
    assert (plural("ferry"), plural("press"), plural("play"), plural("crate")) == (
        "ferries", "presses", "plays", "crates",
    )  # fmt: skip
    assert (an("estate"), an("unit"), an("farm")) == ("an estate", "a unit", "a farm")
    connection = sqlite3.connect(":memory:")
    for noun in {noun for theme in THEMES for role in theme for noun in role}:
        connection.execute(f"CREATE TABLE {noun} ({noun}_id INTEGER)")  # no noun is an SQLite keyword
        connection.execute(f"CREATE TABLE IF NOT EXISTS {plural(noun)} (a INTEGER)")
    connection.close()

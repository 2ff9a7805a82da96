"""Test that each gold query and an equivalent query return the same rows on many databases."""

from __future__ import annotations

import sqlite3
from functools import cache
from random import Random

import pytest

from palestra.envs.sql.domain import LEVELS, Template
from palestra.envs.sql.domains import DOMAINS
from palestra.envs.sql.grade import Compare, grade, same
from palestra.envs.sql.guard import Limits, run

LIMITS = Limits()
build = cache(lambda name, seed, copy: DOMAINS[name].build(seed, copy))
TEMPLATES = [(name, number) for name, domain in DOMAINS.items() for number in range(len(domain.templates))]


@pytest.mark.parametrize("name", DOMAINS)
def test_databases_depend_on_the_seed(name: str) -> None:
    domain = DOMAINS[name]
    first = domain.build(4)
    assert domain.build(4) == first
    assert domain.build(5) != first
    assert domain.build(4, copy=1) != first


@pytest.mark.parametrize("name", DOMAINS)
def test_keys_are_valid_and_differ_between_copies(name: str) -> None:
    domain = DOMAINS[name]
    gold = domain.templates[-1].fill(Random(1), {**domain.slots, **domain.draw_names(2)}).gold
    connections = [domain.build(2, copy, gold).connect() for copy in (0, 1, 2, 3)]
    for connection in connections:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    tables = [row[0] for row in connections[0].execute("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE TABLE%'")]
    assert len(tables) >= 4
    for table in tables:
        rows = [set(connection.execute(f"SELECT * FROM {table}")) for connection in connections]
        assert all(rows)
        assert all(len(rows[0] & other) < len(rows[0]) / 2 for other in rows[1:])
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("name", DOMAINS)
def test_every_level_has_questions_including_joins_and_dates(name: str) -> None:
    templates = DOMAINS[name].templates
    assert all(sum(template.level == level for template in templates) >= 4 for level in LEVELS)
    golds = " ".join(template.gold for template in templates)
    assert all(word in golds for word in ("JOIN", "COUNT(", "AVG(", "GROUP BY", "strftime"))


@pytest.mark.parametrize(("name", "number"), TEMPLATES)
def test_equivalent_queries_agree(name: str, number: int) -> None:
    domain = DOMAINS[name]
    template: Template = domain.templates[number]
    results = set()
    for seed in range(4):
        slots = {**domain.slots, **domain.draw_names(seed)}
        databases = [build(name, seed, copy) for copy in (0, 1)]
        for draw in range(3):
            question = template.fill(Random(100 * seed + draw), slots)
            assert "{" not in question.text + question.gold
            compare: Compare = "list" if question.ordered else "bag"
            edges = [domain.build(seed, copy, question.gold) for copy in (2, 3, 5)] if draw == 0 else []
            for database in [*databases, *edges]:
                gold, alternative = run(database, question.gold, LIMITS), run(database, question.alternative, LIMITS)
                assert gold.error == alternative.error == ""
                assert same(gold, alternative, compare), (question, gold.rows, alternative.rows)
                results.add(gold.rows)
            assert grade(question.alternative, question.gold, [*databases, *edges], compare, LIMITS).correct
    assert len(results) > 4  # the answer depends on the database


@pytest.mark.parametrize(("name", "number"), TEMPLATES)
def test_a_hard_coded_result_is_wrong(name: str, number: int) -> None:
    """A query that returns the result as literal values is correct on the database and wrong on at least one copy."""
    domain = DOMAINS[name]
    question = domain.templates[number].fill(Random(3), {**domain.slots, **domain.draw_names(9)})
    databases = [build(name, 9, copy) for copy in range(3)]
    first = run(databases[0], question.gold, LIMITS)
    if not first.rows or all(same(first, run(copy, question.gold, LIMITS), "bag") for copy in databases[1:]):
        return  # the environment does not ask this question about this database
    quoting = sqlite3.connect(":memory:")
    values = [
        "(" + ", ".join(quoting.execute("SELECT quote(?)", (cell,)).fetchone()[0] for cell in row) + ")"
        for row in first.rows
    ]
    quoting.close()
    hard_coded = f"VALUES {', '.join(values)}"
    compare: Compare = "list" if question.ordered else "bag"
    assert same(run(databases[0], hard_coded, LIMITS), first, compare)
    verdict = grade(hard_coded, question.gold, databases, compare, LIMITS)
    assert not verdict.correct
    assert "copy" in verdict.why

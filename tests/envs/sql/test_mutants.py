"""Test that queries that are almost correct are rejected."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from palestra.envs.sql.mutants import mutants

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "sql_mutants.py"
COLUMNS = {"items": [("item_id", "INTEGER"), ("price", "INTEGER"), ("sold_on", "TEXT")], "shops": [("name", "TEXT")]}
SEEDS = {
    "sql:Shop-v0": (0, 3),
    "sql:Library-v0": (1, 3),
    "sql:School-v0": (0, 2),
    "sql:Flights-v0": (1, 3),
    "sql:Hospital-v0": (0, 3),
    "sql:Random-v0": (0, 4),
}


@pytest.fixture(scope="module")
def benchmark_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sql_mutants", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sql_mutants"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("gold", "operator", "mutant"),
    [
        ("SELECT price FROM items WHERE price >= 5", "comparison", "SELECT price FROM items WHERE price > 5"),
        ("SELECT price FROM items WHERE price > 5", "constant", "SELECT price FROM items WHERE price > 6"),
        ("SELECT price FROM items WHERE price > 5", "dropped condition", "SELECT price FROM items"),
        ("SELECT price FROM items WHERE price > 5", "column", "SELECT item_id FROM items WHERE price > 5"),
        (
            "SELECT price FROM items WHERE price BETWEEN 1 AND 5 AND item_id > 3",
            "dropped condition",
            "SELECT price FROM items WHERE item_id > 3",
        ),
        ("SELECT DISTINCT price FROM items", "dropped distinct", "SELECT price FROM items"),
        ("SELECT COUNT(*) FROM items", "count", "SELECT COUNT ( sold_on ) FROM items"),
        ("SELECT COALESCE(SUM(price), 0) FROM items", "null and negation", "SELECT SUM ( price ) FROM items"),
        ("SELECT SUM(price) FROM items", "aggregate", "SELECT AVG ( price ) FROM items"),
        ("SELECT price FROM items ORDER BY price LIMIT 3", "limit", "SELECT price FROM items ORDER BY price LIMIT 4"),
        ("SELECT price FROM items ORDER BY price", "order", "SELECT price FROM items ORDER BY price DESC"),
        (
            "SELECT name FROM shops LEFT JOIN items USING (shop_id)",
            "left to inner join",
            "SELECT name FROM shops JOIN items USING ( shop_id )",
        ),
        (
            "SELECT price FROM items EXCEPT SELECT item_id FROM items",
            "set operation",
            "SELECT price FROM items UNION ALL SELECT item_id FROM items",
        ),
    ],
)
def test_mutants(gold: str, operator: str, mutant: str) -> None:
    changed = mutants(gold, COLUMNS)
    assert (operator, mutant) in changed
    assert len({query for _, query in changed}) == len(changed)


def test_most_mutants_are_rejected(benchmark_script: ModuleType) -> None:
    """At least 95% of the mutants that are not equivalent to the gold query are rejected."""
    total: Counter[str] = Counter()
    for env_id, (first, count) in SEEDS.items():
        for seed in range(first, first + count):
            for _, outcome, _ in benchmark_script.play(env_id, seed, databases=24, copies=None):
                total[outcome] += 1
    assert total["rejected"] + total["accepted"] > 180
    assert benchmark_script.share(total) >= benchmark_script.BAR, total

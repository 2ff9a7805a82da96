"""Measure how many almost correct queries the SQL environments reject.

    python benchmarks/sql_mutants.py [--ids sql:Shop-v0] [--seeds 40] [--databases 60] [--copies 5] [--show]

For each question, the gold query is changed in one place (`palestra/envs/sql/mutants.py`), and the result is submitted
as an answer. A mutant that is accepted is run on additional databases with other data. If it differs from the gold
query on one of them, it should have been rejected; otherwise, it counts as equivalent. The exit code is 1 if fewer
than 95% of the non-equivalent mutants are rejected.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import palestra
from palestra.envs.sql.env import EdgeCopy, GeneratedSql
from palestra.envs.sql.grade import same
from palestra.envs.sql.guard import Database, Limits, Result, run
from palestra.envs.sql.mutants import Columns, Mutant, mutants

IDS = [f"sql:{name}-v0" for name in ("Shop", "Library", "School", "Flights", "Hospital", "Random")]
BAR = 0.95
LIMITS = Limits()


class Gold:
    """Results of an episode's gold query, computed once per database."""

    def __init__(self, env: GeneratedSql, databases: int) -> None:
        self.env = env
        edge = next(copy for copy in env.databases if isinstance(copy, EdgeCopy))
        numbers = [1_000 + i if i % 4 else -1 - i for i in range(databases)]  # a quarter of these have no edge cases
        self.others: list[Database] = [replace(edge, number=number) for number in numbers]
        self.results: dict[int, Result] = {}

    def rejects(self, query: str, databases: list[Database]) -> bool:
        """Return whether the query returns a wrong result on one of the databases."""
        return any(not self._agrees(query, database) for database in databases)

    def fails(self, query: str) -> bool:
        return bool(run(self.env.databases[0], query, LIMITS).error)

    def _agrees(self, query: str, database: Database) -> bool:
        expected = self.results.get(id(database))
        if expected is None:
            expected = self.results[id(database)] = run(database, self.env.question.gold, LIMITS)
        result = run(database, query, LIMITS)
        return not result.error and same(result, expected, self.env.compare)


def columns_of(env: GeneratedSql) -> Columns:
    connection = env.databases[0].connect()
    tables = env.reset_info()["tables"]
    columns = {
        name: [(row[1], row[2]) for row in connection.execute(f'PRAGMA table_info("{name}")')] for name in tables
    }
    connection.close()
    return columns


def play(env_id: str, seed: int, *, databases: int, copies: int | None) -> Iterator[tuple[Mutant, str, GeneratedSql]]:
    """Yield the mutants for one question, each with "rejected", "accepted" or "equivalent"."""
    env = palestra.make(env_id) if copies is None else palestra.make(env_id, copies=copies)
    env.reset(seed=seed)
    assert isinstance(env, GeneratedSql)
    gold = Gold(env, databases)
    for mutant in mutants(env.question.gold, columns_of(env)):
        if gold.fails(mutant.sql):
            continue
        if gold.rejects(mutant.sql, list(env.databases)):
            yield mutant, "rejected", env
        else:
            yield mutant, "accepted" if gold.rejects(mutant.sql, gold.others) else "equivalent", env


def share(counts: Counter[str]) -> float:
    """Return the share of non-equivalent mutants that were rejected."""
    wrong = counts["rejected"] + counts["accepted"]
    return counts["rejected"] / wrong if wrong else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how many almost correct queries the SQL environments reject.")
    parser.add_argument("--ids", nargs="+", default=IDS, metavar="ID")
    parser.add_argument("--seeds", type=int, default=40, help="Questions per id (default 40).")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--databases", type=int, default=60, help="Databases that decide equivalence (default 60).")
    parser.add_argument("--copies", type=int, default=None, help="Copies used for grading (default: the env's).")
    parser.add_argument("--show", action="store_true", help="Print every wrongly accepted mutant.")
    args = parser.parse_args()
    table: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    for env_id in args.ids:
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            for mutant, outcome, env in play(env_id, seed, databases=args.databases, copies=args.copies):
                table.setdefault(mutant.operator, Counter())[outcome] += 1
                total[outcome] += 1
                if args.show and outcome == "accepted":
                    print(f"{mutant.operator}: {env.question.text}\n  {env.question.gold}\n  {mutant.sql}")
    print(f"{'operator':<22} {'rejected':>9} {'accepted':>9} {'equivalent':>11} {'share':>7}")
    for name, counts in [*sorted(table.items()), ("all", total)]:
        cells = f"{counts['rejected']:>9} {counts['accepted']:>9} {counts['equivalent']:>11}"
        print(f"{name:<22} {cells} {share(counts):>7.1%}")
    return 0 if share(total) >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())

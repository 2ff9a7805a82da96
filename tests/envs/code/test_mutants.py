"""Test that the hidden tests reject wrong programs that differ from the solution in one place."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

BENCHMARK = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "code_mutants.py"))


@pytest.mark.parametrize("name", BENCHMARK["TASKS"])
def test_hidden_tests_reject_nearly_all_mutants(name: str) -> None:
    counts, accepted = BENCHMARK["measure"](name, ["easy", "medium", "hard"], seeds=4, trials=500)
    verdicts = {verdict for _, verdict in counts}
    assert sum(counts.values()) > 300
    assert "rejected" in verdicts
    assert BENCHMARK["share_rejected"](counts) >= BENCHMARK["REQUIRED"], "\n\n".join(accepted)


def test_a_weak_test_accepts_a_mutant() -> None:
    source = "def solve(x):\n    return x >= 3"
    task_class, call_test = BENCHMARK["Task"], BENCHMARK["CallTest"]

    def verdicts(*inputs: int) -> set[tuple[str, str]]:
        tests = tuple(call_test(function="solve", args=(x,), expected=(x >= 3,)) for x in inputs)
        task = task_class(source=source, tests=tests, sample=lambda rng: (rng.randint(0, 9),))
        return {(operator, verdict) for operator, verdict, _ in BENCHMARK["verdicts"](task, trials=100)}

    assert ("comparison boundary", "accepted") in verdicts(0, 9)
    assert {verdict for _, verdict in verdicts(2, 3, 4)} == {"rejected"}


def test_operators_cover_branches_conditions_and_statements() -> None:
    branch = "if x > 2 and x % 2 == 0:\n            best = max(best, x)\n        else:\n            best += 1"
    loop = f"for x in xs:\n        {branch}"
    source = f"def solve(xs):\n    best = -1\n    {loop}\n    return [x for x in xs if x < best]"
    operators = {operator for operator, _ in BENCHMARK["mutants"](source)}
    assert operators == {
        *("comparison boundary", "comparison flip", "operator", "and / or", "missing condition", "negated condition"),
        *("missing branch", "off by one", "function", "missing statement"),
    }

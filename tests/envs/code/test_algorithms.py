"""Compare the solutions of algorithmic problems with brute force, and test their prompts and hidden tests."""

from __future__ import annotations

import ast
import copy
import re
from random import Random
from typing import Any

import pytest

import palestra
from palestra.envs.code.algorithm_parts import CONSTRAINTS, FORMS, Algorithm, add_constraint, add_form
from palestra.envs.code.algorithms import EASY, KINDS, Algorithms
from palestra.envs.code.programs import compile_function
from tests.envs.code import brute_force, brute_force_graphs, brute_force_text


def solve_slowly(problem: Algorithm, args: tuple[Any, ...]) -> Any:
    first, *rest = copy.deepcopy(args)
    if "constraint" in problem.choices:
        first = brute_force.constrain(problem.choices, first)
    modules = (brute_force, brute_force_graphs, brute_force_text)
    module = next(module for module in modules if hasattr(module, problem.kind))
    return getattr(module, problem.kind)(problem.choices, first, *rest)


@pytest.mark.parametrize("kind", KINDS)
def test_brute_force_agrees_with_the_solution(kind: str) -> None:
    for seed in range(18):
        rng = Random(seed)
        problem = KINDS[kind](rng)
        if seed % 3 == 0:
            problem = add_constraint(rng, problem)
        solve = compile_function(problem.source)
        for args in (*problem.edges, *(problem.small(rng) for _ in range(8))):
            expected = solve_slowly(problem, args)
            assert solve(*copy.deepcopy(args)) == expected, (problem.task, args, expected)


def test_there_are_many_kinds_variants_and_structures() -> None:
    assert len(KINDS) >= 25
    assert set(EASY) < set(KINDS)
    drafts = [Algorithms.draw_program(Random(seed), **Algorithms.levels["medium"]) for seed in range(1500)]
    assert {draft.kind for draft in drafts} == set(KINDS)
    assert len({draft.structure for draft in drafts}) > 600
    assert len({draft.task for draft in drafts}) > 1200


def test_forms_change_the_result_as_described() -> None:
    base = KINDS["dice"](Random(1))
    plain = compile_function(base.source)(2, 5)
    forms = {}
    for seed in range(60):
        problem = add_form(Random(seed), base)
        forms[problem.form] = (compile_function(problem.source)(2, 5), problem)
    assert set(forms) == set(FORMS["natural"]) - {"plain"}
    k = {form: problem.form_constant for form, (_, problem) in forms.items()}
    assert forms["remainder"][0] == plain % k["remainder"]
    assert forms["text"][0] == str(plain)
    assert int(forms["binary"][0], 2) == plain
    assert forms["pair"][0] == list(divmod(plain, k["pair"]))
    assert f"divided by {k['remainder']}" in forms["remainder"][1].task
    assert all("{" not in problem.task for _, problem in forms.values())


def test_constraints_apply_only_to_lists_of_values() -> None:
    assert add_constraint(Random(1), KINDS["dice"](Random(1))).choices.get("constraint") is None
    names = {add_constraint(Random(seed), KINDS["block"](Random(1))).choices["constraint"] for seed in range(40)}
    assert names == set(CONSTRAINTS)


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_examples_are_true_and_inputs_are_not_modified(level: str) -> None:
    for seed in range(30):
        item = Algorithms.generate(Random(seed), **Algorithms.levels[level])
        question = str(item.question)
        solve = compile_function(item.answer)
        examples = re.findall(r"^solve\((.*)\) returns (.*)$", question, re.M)
        assert len(examples) >= 2
        for args, result in examples:
            assert solve(*ast.literal_eval(f"[{args}]")) == ast.literal_eval(result)
        for test in item.gold:
            args = copy.deepcopy(test.args)
            assert solve(*args) == test.expected[0]
            assert args == test.args
        assert len(item.gold) >= 15
        assert len({repr(test.expected) for test in item.gold}) >= 3
        assert not re.search(r"\{\w*\}|  |[^.]\.\.[^.]|^\d+\. ", question.partition("Examples")[0], re.M), question


EXPONENTIAL = {
    "apart": """
def solve(values, at=0):
    return 0 if at >= len(values) else max(solve(values, at + 1), values[at] + solve(values, at + 2))
""",
    "alignment": """
def solve(a, b):
    if not a or not b:
        return len(a) + len(b)
    return min(solve(a[1:], b), solve(a, b[1:]), solve(a[1:], b[1:]))
""",
}


@pytest.mark.parametrize(("kind", "source"), EXPONENTIAL.items())
def test_exponential_solutions_exceed_the_time_limit(kind: str, source: str) -> None:
    with palestra.make("code:Algorithms-v0-hard", kinds=[kind]) as env:
        env.reset(seed=1)
        step = env.step(f"```python\n{source}\n```")
        assert step.info["success"] is False
        assert "limit" in step.info["why"]


def test_in_the_sandbox() -> None:
    with palestra.make("code:Algorithms-v0-random", max_attempts=2) as env:
        for seed in range(6):
            env.reset(seed=seed)
            assert env.step(env.sample_random_action()).info["score"] < 1
            assert env.step(str(env.expert_action())).reward == 1.0

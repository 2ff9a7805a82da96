"""Test the generated programming tasks and the bugs inserted into programs."""

from __future__ import annotations

import ast
import re
from random import Random
from typing import Any

import pytest

import palestra
from palestra.envs.code.bugs import LimitExceeded, are_independent, compile_limited, find_bug_sites, insert_bugs
from palestra.envs.code.programs import compile_function
from palestra.envs.code.puzzles import Puzzles
from palestra.envs.code.repair import Repair
from palestra.grading import CallTest
from palestra.parsing import last_code

LEVELS = ("easy", "medium", "hard")


def outcome(function: Any, args: tuple[Any, ...]) -> str:
    try:
        return f"returns {function(*args)!r}"
    except Exception as err:  # noqa: BLE001
        return f"raises {type(err).__name__}"


def failed(source: str, tests: tuple[CallTest, ...]) -> int:
    function = compile_function(source)
    return sum(outcome(function, test.args) != f"returns {test.expected[0]!r}" for test in tests)


@pytest.mark.parametrize("level", LEVELS)
def test_examples_are_true_and_constants_fail(level: str) -> None:
    for seed in range(25):
        item = Puzzles.generate(Random(seed), **Puzzles.levels[level])
        question = str(item.question)
        function = compile_function(item.answer)
        examples = re.findall(r"^solve\((.*)\) returns (.*)$", question, re.M)
        assert len(examples) == 3
        for args, result in examples:
            assert function(*ast.literal_eval(f"[{args}]")) == ast.literal_eval(result)
        assert failed(item.answer, item.gold) == 0
        assert len({repr(test.expected) for test in item.gold}) >= 3  # no constant function passes all tests
        assert len(item.gold) >= 12


@pytest.mark.parametrize("level", LEVELS)
def test_the_buggy_program_fails_as_stated(level: str) -> None:
    for seed in range(15):
        item = Repair.generate(Random(seed), **Repair.levels[level])
        question = str(item.question)
        wrong = last_code(question)
        assert wrong is not None
        assert failed(item.answer, item.gold) == 0
        assert failed(wrong, item.gold) >= 2
        match = re.search(r"However, solve\((.*)\) ((?:returns|raises) .*), but should return (.*)\. Fix", question)
        assert match is not None
        args = tuple(ast.literal_eval(f"[{match[1]}]"))
        assert outcome(compile_function(wrong), args) == match[2]
        assert outcome(compile_function(item.answer), args) == f"returns {match[3]}"


def test_every_bug_counts() -> None:
    """Check that each bug changes the program, both alone and in combination with others."""
    loop = "for x in xs:\n        if x > 2 and x < 9:\n            total += x * 2"
    source = f"def solve(xs):\n    total = 0\n    {loop}\n    return total"
    tree = ast.parse(source)
    kinds = {kind for _, kind in find_bug_sites(tree)}
    assert kinds == {"comparison", "operator", "logic", "negated", "off by one", "early return"}
    for site in find_bug_sites(tree):
        assert ast.unparse(insert_bugs(source, [site], 1)) != source
        assert ast.unparse(insert_bugs(source, [site], 1)) == ast.unparse(insert_bugs(source, [site], 1))
    first, second = find_bug_sites(tree)[:2]
    assert are_independent(tree, [first])
    assert not are_independent(tree, [first, first])
    both = ast.unparse(insert_bugs(source, [first, second], 1))
    assert both not in {ast.unparse(insert_bugs(source, [one], 1)) for one in (first, second)}


def test_a_program_that_does_not_terminate_is_stopped() -> None:
    for body in ("while True:\n        pass", "x = 2\n    for _ in range(40):\n        x = x * x\n    return x"):
        with pytest.raises(LimitExceeded):
            compile_limited(ast.parse(f"def solve():\n    {body}"))(())
    assert compile_limited(ast.parse("def solve():\n    return [][1]"))(()).describe() == "raises IndexError"


@pytest.mark.parametrize("env_id", ["code:Puzzles-v0-hard", "code:Repair-v0-hard"])
def test_in_the_sandbox(env_id: str) -> None:
    with palestra.make(env_id, max_attempts=3) as env:
        for seed in (1, 2):
            env.reset(seed=seed)
            wrong = env.step(env.sample_random_action())
            assert not wrong.terminated
            assert "is not correct" in str(wrong.observation)
            assert 0 <= wrong.info["score"] < 1
            assert env.step("```python\nprint(1)\n```").info["why"] == "the program does not define a function solve"
            assert env.step(str(env.expert_action())).reward == 1.0


def test_a_program_that_hangs_is_wrong_and_not_an_error() -> None:
    with palestra.make("code:Puzzles-v0-easy") as env:
        env.reset(seed=1)
        step = env.step("```python\ndef solve(*args):\n    while True:\n        pass\n```")
        assert step.info["success"] is False
        assert "limit" in step.info["why"]

"""Verify answers independently by evaluating the text, by substitution, and with sympy."""

from __future__ import annotations

import re
from fractions import Fraction
from random import Random
from typing import Any

import pytest
import sympy  # type: ignore[import-untyped]

from palestra.envs.math.algebra import Algebra
from palestra.envs.math.arithmetic import Arithmetic
from palestra.envs.tasks.base import Item
from palestra.grading import grade_math

LEVELS = ("easy", "medium", "hard")


def items(kind: Any, level: str, count: int, **changed: Any) -> list[Item]:
    return [kind.generate(Random(seed), **{**kind.levels[level], **changed}) for seed in range(count)]


def value(text: str, **names: Fraction) -> Any:
    """Evaluate an expression exactly."""
    text = text.replace("\u00d7", "*").replace("·", "*").replace("÷", "/").replace("^", "**")
    text = re.sub(r"(?<=[0-9a-z)])\s*(?=\()|(?<=[0-9)])(?=[a-z])|(?<=[a-z0-9]) (?=[a-z])", "*", text)
    text = re.sub(r"(?<![\w.])(\d+(?:\.\d+)?)(?!\w)", r"Fraction('\1')", text)
    return eval(text, {"Fraction": Fraction, **names})


@pytest.mark.parametrize("level", LEVELS)
def test_arithmetic_answers_are_the_values_of_the_expressions(level: str) -> None:
    kinds = set()
    for item in items(Arithmetic, level, 300):
        text = str(item.question).partition(" Give")[0].rstrip(".?")
        expression = re.sub(r"^(What is|Calculate|Evaluate|Compute|(Work out the|Find the exact) value of) ", "", text)
        assert value(expression) == Fraction(item.answer), item.question
        kinds.add(item.key)
    assert kinds == set(Arithmetic.levels[level]["numbers"])


@pytest.mark.parametrize("level", LEVELS)
def test_programs_print_the_answers(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    for item in items(Arithmetic, level, 100):
        exec(item.code, {})
        assert grade_math(capsys.readouterr().out.strip(), item.answer, evaluated=True).correct, item.question


def test_arithmetic_respects_its_settings() -> None:
    for item in items(Arithmetic, "easy", 100, operations="*", digits=3, terms=5):
        text = str(item.question)
        numbers = re.findall(r"\d+", text)
        assert len(numbers) == 5
        assert all(len(number) <= 3 for number in numbers)
        assert not set("+-/÷^()") & set(text)
    for item in items(Arithmetic, "hard", 100, operations="/", terms=4, numbers=["integers"]):
        assert "/" not in item.answer  # divisions of whole numbers have no remainder


@pytest.mark.parametrize("level", LEVELS)
def test_linear_solutions_solve(level: str) -> None:
    for item in items(Algebra, level, 200, kinds=("linear",)):
        text = str(item.question)
        match = re.search(r"(?:: |satisfies | does )(.*?) = (.*?)(?:\.| hold|$)", text)
        assert match is not None, text
        names = set(re.findall(r"[a-z]", match[1] + match[2]))
        assert len(names) == 1
        left, right = (value(side, **{names.copy().pop(): Fraction(item.answer)}) for side in match.groups())
        assert left == right, text


def numbers_in(answer: str) -> list[Fraction]:
    return [Fraction(part) for part in answer.strip("()").split(", ")]


@pytest.mark.parametrize("level", LEVELS)
def test_quadratics_against_sympy(level: str) -> None:
    for item in items(Algebra, level, 40, kinds=("quadratic",)):
        text = str(item.question)
        match = re.search(r"((?:-?\d*[a-z]\^2)[^=]*) = ([^.,?]*)", text)
        assert match is not None, text
        name = re.findall(r"[a-z]", match[1])[0]
        x = sympy.Symbol(name)
        left, right = (sympy.sympify(str(_sympy(side))) for side in match.groups())
        roots = [root for root, often in sympy.roots(sympy.Poly(left - right, x)).items() for _ in range(often)]
        assert len(roots) == 2
        if "larger" in text:
            assert max(roots) == sympy.Rational(item.answer)
        elif "smaller solution" in text:
            assert min(roots) == sympy.Rational(item.answer)
        elif "sum of the solutions" in text:
            assert sum(roots) == sympy.Rational(item.answer)
        elif "as a pair" in text:
            assert sorted(roots) == [sympy.Rational(str(part)) for part in numbers_in(item.answer)]
        else:
            expression = _sympy(text.partition("exact value of ")[2].rstrip("."))
            result = sympy.sympify(expression).subs(dict(zip(sympy.symbols("r s"), roots, strict=True)))
            assert sympy.simplify(result - sympy.Rational(item.answer)) == 0, text


def _sympy(text: str) -> str:
    text = re.sub(r"(?<=[0-9a-z)]) ?(?=\()|(?<=[0-9)])(?=[a-z])|(?<=[a-z0-9]) (?=[a-z])", "*", text)
    return text.replace("^", "**")


@pytest.mark.parametrize("level", LEVELS)
def test_systems_are_solved(level: str) -> None:
    for item in items(Algebra, level, 30, kinds=("system",)):
        text = str(item.question)
        lines = [line.split(" = ") for line in text.splitlines() if " = " in line]
        names = sympy.symbols("x y z w")[: len(lines)]
        equations = [sympy.Eq(sympy.sympify(_sympy(left)), sympy.sympify(_sympy(right))) for left, right in lines]
        (solution,) = sympy.linsolve(equations, *names)
        if "find the value of" in text:
            expression = sympy.sympify(_sympy(text.partition("find the value of ")[2].rstrip(".")))
            assert expression.subs(dict(zip(names, solution, strict=True))) == sympy.Rational(item.answer)
        else:
            assert list(solution) == [sympy.Rational(str(part)) for part in numbers_in(item.answer)]


def test_polynomials_at_points() -> None:
    seen = set()
    for item in items(Algebra, "medium", 150, kinds=("polynomial",)) + items(
        Algebra, "hard", 150, kinds=("polynomial",)
    ):
        text = str(item.question)
        pair = re.search(r"\(([^()]*)\)\(([^()]*)\)", text)
        if text.startswith("Expand"):
            seen.add("expand")
            assert pair is not None
            name = text.rstrip(".")[-1]
            for point in map(Fraction, (-3, 0, 1, 2, 7)):
                product = value(pair[1], **{name: point}) * value(pair[2], **{name: point})
                assert value(item.answer, **{name: point}) == product
        elif pair is not None and "coefficient of" in text:
            seen.add("coefficient")
            name = re.findall(r"[xtyz]", pair[1])[0]
            poly = sympy.Poly(sympy.sympify(_sympy(f"({pair[1]})*({pair[2]})")), sympy.Symbol(name))
            power = re.search(r"coefficient of [xtyz](?:\^(\d+))? in", text)
            assert power is not None
            assert poly.coeff_monomial(sympy.Symbol(name) ** int(power[1] or 1)) == int(item.answer)
        elif pair is not None:
            seen.add("sum")
            one = {name: Fraction(1) for name in "xtyz"}
            assert value(pair[1], **one) * value(pair[2], **one) == int(item.answer)
        elif "remainder" in text:
            seen.add("remainder")
            match = re.search(r"when (.*) is divided by (.*)\?", text)
            assert match is not None
            rest = sympy.rem(sympy.sympify(_sympy(match[1])), sympy.sympify(_sympy(match[2])))
            assert rest == int(item.answer)
        elif "f(g(" in text:
            seen.add("compose")
            match = re.search(r"f\(([xtyz])\) = (.*) and g\(.\) = (.*)\. Find f\(g\((.*)\)\)", text)
            assert match is not None
            inner = value(match[3], **{match[1]: Fraction(match[4])})
            assert value(match[2], **{match[1]: inner}) == int(item.answer)
        else:
            seen.add("value")
            match = re.search(r"p\(([xtyz])\) = (.*)\. What is p\((.*)\)", text)
            assert match is not None
            assert value(match[2], **{match[1]: Fraction(match[3])}) == int(item.answer)
    assert seen == {"expand", "coefficient", "sum", "remainder", "compose", "value"}


@pytest.mark.parametrize("level", ["easy", "hard", "random"])
def test_arithmetic_refuses_the_expression_of_the_question(level: str) -> None:
    env = Arithmetic(level=level)
    for seed in range(100):
        prompt, _ = env.reset(seed=seed)
        text = str(prompt).partition("\n")[0].partition(" Give")[0].rstrip(".?")
        expression = re.sub(r"^(What is|Calculate|Evaluate|Compute|(Work out the|Find the exact) value of) ", "", text)
        assert not env.fork().step(f"\\boxed{{{expression}}}").info["success"], expression
        assert not env.fork().step(f"\\boxed{{{expression} + 0}}").info["success"], expression
        assert env.step(f"\\boxed{{{expression} = {env.item.answer}}}").info["success"], expression

"""Algebra: equations, systems and polynomials, each constructed from its solution."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.math.base import MathTask
from palestra.envs.math.exact import Number, format_number, format_polynomial, format_sum, format_tuple, nonzero
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_int, check_subset

LETTERS = "xyzabkmnpqrstuvw"
UNKNOWNS = ("x, y", "x, y, z", "x, y, z, w")
QuestionAnswer = tuple[str, str]


class Algebra(MathTask):
    """Questions about linear and quadratic equations, systems of equations, and polynomials.

    `kinds` is a subset of linear, quadratic, system and polynomial. `size` bounds the numbers in an item. `steps`
    (1 to 3) is the difficulty: with 2 or more, equations have brackets and unknowns on both sides; with 3, there are
    also fractions, and questions about roots that can be answered without computing the roots. `unknowns` is the number
    of unknowns in a system, and `degree` is the highest power in a polynomial. There are several hundred thousand
    different items at the easy level and millions at the other levels.
    """

    levels: ClassVar[Levels] = {
        "easy": {"kinds": ("linear", "quadratic", "system"), "size": 20, "steps": 1, "unknowns": 2, "degree": 2},
        "medium": {
            "kinds": ("linear", "quadratic", "system", "polynomial"),
            "size": 15,
            "steps": 2,
            "unknowns": 2,
            "degree": 3,
        },
        "hard": {
            "kinds": ("linear", "quadratic", "system", "polynomial"),
            "size": 20,
            "steps": 3,
            "unknowns": 3,
            "degree": 4,
        },
    }

    def __init__(
        self,
        *,
        level: str = "easy",
        kinds: tuple[str, ...] | None = None,
        size: int | None = None,
        steps: int | None = None,
        unknowns: int | None = None,
        degree: int | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        overrides = {"kinds": kinds, "size": size, "steps": steps, "unknowns": unknowns, "degree": degree}
        super().__init__(level, overrides, **options)

    @classmethod
    def check(cls, *, kinds: Any, size: Any, steps: Any, unknowns: Any, degree: Any) -> None:
        check_subset("kinds", kinds, KINDS)
        check_int("size", size, 5, 1_000_000)
        check_int("steps", steps, 1, 3)
        check_int("unknowns", unknowns, 2, 4)
        check_int("degree", degree, 2, 8)

    @classmethod
    def generate(
        cls, rng: Random, *, kinds: tuple[str, ...], size: int, steps: int, unknowns: int, degree: int
    ) -> Item:
        kind = rng.choice(kinds)
        question, answer = KINDS[kind](rng, size, steps, unknowns, degree)
        return Item(question=question, answer=answer, key=kind)

    def example_answer(self) -> str:
        return "-7/2"


def _linear(rng: Random, size: int, steps: int, unknowns: int, degree: int) -> QuestionAnswer:  # noqa: ARG001
    x = rng.choice(LETTERS)
    if steps < 3:
        solution: Number = rng.randint(-size, size)
    else:
        solution = Fraction(nonzero(rng, size), rng.randint(2, 9))
    if steps == 1:
        a, b = nonzero(rng, size, low=2), nonzero(rng, size)
        left, right = format_sum([(a, x), (b, "")]), format_number(a * solution + b)
        if rng.random() < 0.3:
            left, right = right, left
    elif steps == 2:
        a, b, c, d = nonzero(rng, size, low=2), nonzero(rng, size), nonzero(rng, size), nonzero(rng, size)
        while d == a:
            d = nonzero(rng, size)
        rest = a * (solution + b) + c - d * solution
        left = f"{'-' if a == -1 else a}({format_sum([(1, x), (b, '')])}) {'-' if c < 0 else '+'} {abs(c)}"
        right = format_sum([(d, x), (rest, "")])
    else:
        while True:
            p, q = rng.randint(2, 12), rng.randint(2, 12)
            a, b, c, d = (nonzero(rng, size) for _ in range(4))
            e = nonzero(rng, 6)
            if Fraction(a, p) - Fraction(c, q) != e:
                break
        # The constant on the right is chosen so that the equation has the sampled solution.
        rest = Fraction(a * solution + b) / p - Fraction(c * solution + d) / q - e * solution
        left = f"({format_sum([(a, x), (b, '')])})/{p} - ({format_sum([(c, x), (d, '')])})/{q}"
        right = format_sum([(e, x), (rest, "")])
    question = rng.choice(
        ("Solve for {x}: {e}.", "Find the value of {x} that satisfies {e}.", "For which value of {x} does {e} hold?")
    )
    note = " Give the exact value." if steps == 3 else ""
    return question.format(x=x, e=f"{left} = {right}") + note, format_number(solution)


def _quadratic(rng: Random, size: int, steps: int, unknowns: int, degree: int) -> QuestionAnswer:  # noqa: ARG001
    x = rng.choice("xtyz")
    if steps == 3 and rng.random() < 0.5:
        return _about_roots(rng, size, x)
    if steps == 1:
        first, second, lead = rng.randint(-size, size), rng.randint(-size, size), 1
        roots: list[Number] = [first, second]
        coefficients: list[Number] = [first * second, -(first + second), 1]
    else:
        p, q = rng.randint(1, 6), rng.randint(1, 6)  # (p x - r)(q x - s)
        r, s = nonzero(rng, size), nonzero(rng, size)
        lead = nonzero(rng, 4)
        roots = [Fraction(r, p), Fraction(s, q)]
        coefficients = [lead * r * s, -lead * (p * s + q * r), lead * p * q]
    equation = _equation(rng, coefficients, x, moved=steps > 1)
    small, large = sorted(roots)
    which = rng.randrange(4)
    if which == 0:
        return f"What is the larger solution of {equation}? If there is only one solution, give it.", format_number(
            large
        )
    if which == 1:
        return f"Find the smaller solution of {equation}. If there is only one solution, give it.", format_number(small)
    if which == 2:
        question = f"What is the sum of the solutions of {equation}, where a double root counts twice?"
        return question, format_number(small + large)
    question = (
        f"Solve {equation}. Give both solutions as a pair ({x}1, {x}2), the smaller one first; repeat a double root."
    )
    return question, format_tuple([small, large])


def _about_roots(rng: Random, size: int, x: str) -> QuestionAnswer:
    """Generate a question about a symmetric function of two possibly irrational roots, using Vieta's formulas."""
    a, b, c = rng.randint(1, 9), nonzero(rng, size), nonzero(rng, size)
    total, product = Fraction(-b, a), Fraction(c, a)
    squares = total**2 - 2 * product
    text, value = rng.choice(
        [
            ("r^2 + s^2", squares),
            ("r^3 + s^3", total**3 - 3 * product * total),
            ("1/r + 1/s", total / product),
            ("(r - s)^2", total**2 - 4 * product),
            ("r/s + s/r", squares / product),
            ("(r + 1)(s + 1)", product + total + 1),
            ("r^2 s + r s^2", product * total),
        ]
    )
    equation = _equation(rng, [c, b, a], x, moved=True)
    question = (
        f"Let r and s be the two (possibly equal or complex) roots of the equation {equation}, counted with "
        f"multiplicity. Find the exact value of {text}."
    )
    return question, format_number(value)


def _equation(rng: Random, coefficients: Sequence[Number], x: str, *, moved: bool) -> str:
    """Format an equation that sets a polynomial to 0; with `moved`, some terms may be moved to the right side."""
    if not moved or rng.random() < 0.4:
        return f"{format_polynomial(coefficients, x)} = 0"
    constant, linear, *rest = coefficients
    over = [nonzero(rng, 9), rng.randint(-5, 5)]
    left = [constant + over[0], linear + over[1], *rest]
    return f"{format_polynomial(left, x)} = {format_polynomial(over, x)}"


def _system(rng: Random, size: int, steps: int, unknowns: int, degree: int) -> QuestionAnswer:  # noqa: ARG001
    names = UNKNOWNS[unknowns - 2].split(", ")
    solution: list[Number] = [rng.randint(-size, size) for _ in names]
    most = min(size, 4 + 3 * steps)
    rows = [[rng.randint(-most, most) for _ in names] for _ in names]
    while determinant(rows) == 0:
        rows = [[rng.randint(-most, most) for _ in names] for _ in names]
    lines = []
    for row in rows:
        right = sum((factor * value for factor, value in zip(row, solution, strict=True)), Fraction(0))
        lines.append(f"{format_sum(zip(row, names, strict=True))} = {format_number(right)}")
    text = "\n".join(lines)
    if steps > 1 and rng.random() < 0.5:
        factors = [nonzero(rng, 5) for _ in names]
        expression = format_sum(zip(factors, names, strict=True))
        value = sum((factor * part for factor, part in zip(factors, solution, strict=True)), Fraction(0))
        return f"Given the system\n{text}\nfind the value of {expression}.", format_number(value)
    order = f"({', '.join(names)})"
    question = rng.choice(("Solve the system of equations", "Find the unique solution of the system"))
    return f"{question}\n{text}\nGive the solution as {order}, in this order.", format_tuple(solution)


def determinant(rows: Sequence[Sequence[int]]) -> int:
    """Compute a determinant by expansion along the first row, which is fast enough for small matrices."""
    if len(rows) == 1:
        return rows[0][0]
    minors = ([[*row[:j], *row[j + 1 :]] for row in rows[1:]] for j in range(len(rows)))
    return sum((-1) ** j * rows[0][j] * determinant(minor) for j, minor in enumerate(minors) if rows[0][j])


def _polynomial(rng: Random, size: int, steps: int, unknowns: int, degree: int) -> QuestionAnswer:  # noqa: ARG001
    x = rng.choice("xtyz")

    def draw(power: int) -> list[Number]:
        return [*(rng.randint(-size, size) for _ in range(power)), nonzero(rng, min(size, 9))]

    first, second = draw(rng.randint(1, degree)), draw(rng.randint(1, max(1, degree - 1)))
    p, q = format_polynomial(first, x), format_polynomial(second, x)
    at = nonzero(rng, 6)
    product = multiply(first, second)
    kinds = (
        ["value", "remainder", "coefficient", "expand"] if steps < 3 else ["coefficient", "expand", "compose", "sum"]
    )
    kind = rng.choice(kinds)
    if kind == "value":
        return f"Let p({x}) = {p}. What is p({at})?", format_number(value_at(first, at))
    if kind == "remainder":
        question = f"What is the remainder when {p} is divided by {format_sum([(1, x), (-at, '')])}?"
        return question, format_number(value_at(first, at))
    if kind == "coefficient":
        power = rng.randint(1, len(product) - 1)
        name = x if power == 1 else f"{x}^{power}"
        return f"Find the coefficient of {name} in the expansion of ({p})({q}).", format_number(product[power])
    if kind == "compose":
        question = f"Let f({x}) = {p} and g({x}) = {q}. Find f(g({at}))."
        return question, format_number(value_at(first, value_at(second, at)))
    if kind == "sum":
        question = f"Find the sum of all coefficients in the expansion of ({p})({q}), including the constant term."
        return question, format_number(sum(product, Fraction(0)))
    question = f"Expand and collect like terms: ({p})({q}). Give a polynomial in {x}."
    return question, format_polynomial(product, x)


def multiply(first: Sequence[Number], second: Sequence[Number]) -> list[Number]:
    product: list[Number] = [0] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            product[i + j] += a * b
    return product


def value_at(coefficients: Sequence[Number], x: Number) -> Number:
    total: Number = 0
    for factor in reversed(coefficients):
        total = total * x + factor
    return total


KINDS: Mapping[str, Callable[[Random, int, int, int, int], QuestionAnswer]] = {
    "linear": _linear,
    "quadratic": _quadratic,
    "system": _system,
    "polynomial": _polynomial,
}

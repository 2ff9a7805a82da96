"""Arithmetic: exact evaluation of expressions with whole numbers, decimals or fractions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.math.base import MathTask
from palestra.envs.math.exact import format_decimal, format_number
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_bool, check_int, check_subset
from palestra.errors import BadValue

OPERATIONS = "+-*/^"
NUMBERS = ("integers", "decimals", "fractions")
MAX_DIGITS, MAX_TERMS = 12, 20

_SUM, _PRODUCT, _ATOM = 1, 2, 3  # precedence of the outermost operation
_QUESTIONS = (
    "Calculate {}.",
    "What is {}?",
    "Evaluate {}.",
    "Work out the value of {}.",
    "Find the exact value of {}.",
    "Compute {}.",
)
_FORMS = {
    "integers": "",
    "decimals": " Give the exact decimal; do not round.",
    "fractions": " Give the exact value as a whole number or a fraction.",
}
_SIGNS = (("\u00d7", "÷"), ("*", "/"), ("·", "/"))


@dataclass(frozen=True, slots=True)
class Expression:
    text: str  # the expression, with the operators * and /
    value: Fraction
    precedence: int


class Arithmetic(MathTask):
    """Evaluate an expression that contains `terms` numbers with up to `digits` digits each.

    `operations` is a subset of `+-*/^`; a power has the exponent 2 or 3 and counts as one number. If `brackets` is
    False, expressions have no brackets. For each item, the kind of numbers is sampled from `numbers`: "integers"
    (divisions have no remainder, so a dividend may have more digits), "decimals" (up to two decimal places) or
    "fractions". Every level has millions of different items.
    """

    levels: ClassVar[Levels] = {
        "easy": {"operations": "+-", "digits": 2, "terms": 3, "brackets": False, "numbers": ("integers",)},
        "medium": {"operations": "+-*/", "digits": 3, "terms": 4, "brackets": True, "numbers": ("integers",)},
        "hard": {"operations": "+-*/^", "digits": 4, "terms": 7, "brackets": True, "numbers": NUMBERS},
    }

    def __init__(
        self,
        *,
        level: str = "easy",
        operations: str | None = None,
        digits: int | None = None,
        terms: int | None = None,
        brackets: bool | None = None,
        numbers: tuple[str, ...] | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        overrides = {
            "operations": operations,
            "digits": digits,
            "terms": terms,
            "brackets": brackets,
            "numbers": numbers,
        }
        super().__init__(level, overrides, **options)

    @classmethod
    def check(cls, *, operations: Any, digits: Any, terms: Any, brackets: Any, numbers: Any) -> None:
        if not isinstance(operations, str) or not set(operations) <= set(OPERATIONS) or not set(operations) - {"^"}:
            raise BadValue(
                f"operations must be a subset of {OPERATIONS} with at least one other than ^, got {operations!r}"
            )
        check_int("digits", digits, 1, MAX_DIGITS)
        check_int("terms", terms, 2, MAX_TERMS)
        check_bool("brackets", brackets)
        check_subset("numbers", numbers, NUMBERS)

    @classmethod
    def generate(
        cls, rng: Random, *, operations: str, digits: int, terms: int, brackets: bool, numbers: tuple[str, ...]
    ) -> Item:
        kind = rng.choice(numbers)
        generator = _Generator(rng, kind, operations, digits)
        expression = generator.tree(terms) if brackets else generator.flat(terms)
        times, over = rng.choice(_SIGNS)
        text = expression.text.replace("*", times)
        if kind != "fractions":  # in expressions with fractions, a/b is a number
            text = text.replace("/", over)
        question = rng.choice(_QUESTIONS).format(text) + _FORMS[kind]
        answer = format_decimal(expression.value) if kind == "decimals" else format_number(expression.value)
        return Item(question=question, answer=answer, key=kind, code=_program(expression.text))


def _program(expression: str) -> str:
    """Return a Python program that prints the exact value of an expression."""
    if set(expression) <= set("0123456789+-*() "):
        return f"print({expression})"
    return f"import sympy\nprint(sympy.S({expression!r}, rational=True))"


class _Generator:
    """Generator of random expressions with one kind of number."""

    def __init__(self, rng: Random, kind: str, operations: str, digits: int) -> None:
        self.rng, self.kind, self.digits = rng, kind, digits
        self.power = "^" in operations
        self.binary = [sign for sign in operations if sign != "^"]

    def literal(self) -> Expression:
        rng, digits = self.rng, self.digits
        length = rng.randint((digits + 1) // 2, digits)
        number = rng.randint(10 ** (length - 1), 10**length - 1)
        if self.power and rng.random() < 0.2:
            base, exponent = number % 100 or 7, rng.choice((2, 2, 3))
            return Expression(f"{base}^{exponent}", Fraction(base**exponent), _ATOM)
        if self.kind == "decimals":
            return _literal(Fraction(number, 10 ** rng.randint(0, 2)), self.kind)
        if self.kind == "fractions":
            return _literal(Fraction(number % 60 + 1, rng.randint(1, 12)), self.kind)
        return _literal(Fraction(number), self.kind)

    def tree(self, terms: int) -> Expression:
        if terms == 1:
            return self.literal()
        sign = self.rng.choice(self.binary)
        left = self.rng.randint(1, terms - 1)
        if sign == "/":
            return self.quotient(left, terms - left)
        return _combine(self.tree(left), sign, self.tree(terms - left))

    def quotient(self, left: int, right: int) -> Expression:
        divisor = self.tree(right)
        while divisor.value == 0:
            divisor = self.tree(right)
        if self.kind == "fractions":
            return _combine(self.tree(left), "/", divisor)
        quotient = self.rng.randint(2, 10 ** ((self.digits + 1) // 2))
        target = quotient * divisor.value
        if left == 1 or not {"+", "-"} & set(self.binary):
            return _combine(_literal(target, self.kind), "/", divisor)
        part = self.tree(left - 1)
        rest = target - part.value  # adding this value makes the dividend a multiple of the divisor
        sign = "+" if "+" in self.binary else "-"
        return _combine(_combine(part, sign, _literal(rest if sign == "+" else -rest, self.kind)), "/", divisor)

    def flat(self, terms: int) -> Expression:
        """Generate a sum of products and quotients without brackets."""
        rng = self.rng
        additive = [sign for sign in self.binary if sign in "+-"]
        multiplicative = [sign for sign in self.binary if sign in "*/"]
        sizes = [1]
        for _ in range(terms - 1):  # each number extends the current product or starts a new one
            if multiplicative and (not additive or rng.random() < 0.5):
                sizes[-1] += 1
            else:
                sizes.append(1)
        total = self.product(sizes[0], multiplicative)
        for size in sizes[1:]:
            total = _combine(total, rng.choice(additive), self.product(size, multiplicative))
        return total

    def product(self, size: int, operators: list[str]) -> Expression:
        signs = [self.rng.choice(operators) for _ in range(size - 1)]
        factors = [self.literal() for _ in signs]
        first = self.literal()
        if "/" in signs and self.kind != "fractions":
            value = Fraction(self.rng.randint(2, 10 ** ((self.digits + 1) // 2)))
            for sign, factor in zip(signs, factors, strict=True):
                value *= factor.value if sign == "/" else 1
            first = _literal(value, self.kind)
        for sign, factor in zip(signs, factors, strict=True):
            first = _combine(first, sign, factor)
        return first


def _literal(value: Fraction, kind: str) -> Expression:
    text = format_decimal(value) if kind == "decimals" else format_number(value)
    if value < 0:
        return Expression(f"({text})", value, _ATOM)
    return Expression(text, value, _PRODUCT if "/" in text else _ATOM)


def _combine(left: Expression, sign: str, right: Expression) -> Expression:
    precedence = _SUM if sign in "+-" else _PRODUCT
    before = left.text if left.precedence >= precedence else f"({left.text})"
    strict = sign in "-/*"  # brackets are needed in a - (b + c), a / (b * c) and, for clarity, a * (b / c)
    after = (
        right.text
        if right.precedence > precedence or (not strict and right.precedence >= precedence)
        else f"({right.text})"
    )
    a, b = left.value, right.value
    value = a + b if sign == "+" else a - b if sign == "-" else a * b if sign == "*" else a / b
    return Expression(f"{before} {sign} {after}", value, precedence)

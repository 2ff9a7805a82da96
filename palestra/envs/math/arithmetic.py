"""Arithmetic: an expression to calculate exactly, in whole numbers, decimals or fractions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.math.base import MathTask
from palestra.envs.math.exact import decimal, shown
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_flag, check_some, check_whole
from palestra.errors import BadValue

OPERATIONS = "+-*/^"
NUMBERS = ("integers", "decimals", "fractions")
MOST_DIGITS, MOST_TERMS = 12, 20

_SUM, _PRODUCT, _ATOM = 1, 2, 3  # how tightly an expression binds
_ASKS = (
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
    text: str  # with * and / as signs
    value: Fraction
    binds: int


class Arithmetic(MathTask):
    """An expression of `terms` numbers of up to `digits` digits each, to be calculated.

    `operations` are some of `+-*/^`; powers have exponents 2 and 3 and count as one number. Without `brackets`, only
    the usual precedence matters. `numbers` are drawn from for every item: "integers" (divisions come out even, so that
    a dividend may have more digits), "decimals" (up to two places) or "fractions". Every level has millions of
    different items.
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
        given = {
            "operations": operations,
            "digits": digits,
            "terms": terms,
            "brackets": brackets,
            "numbers": numbers,
        }
        super().__init__(level, given, **options)

    @classmethod
    def check(cls, *, operations: Any, digits: Any, terms: Any, brackets: Any, numbers: Any) -> None:
        if not isinstance(operations, str) or not set(operations) <= set(OPERATIONS) or not set(operations) - {"^"}:
            raise BadValue(f"operations are some of {OPERATIONS}, and not ^ alone, got {operations!r}")
        check_whole("digits", digits, 1, MOST_DIGITS)
        check_whole("terms", terms, 2, MOST_TERMS)
        check_flag("brackets", brackets)
        check_some("numbers", numbers, NUMBERS)

    @classmethod
    def generate(
        cls, rng: Random, *, operations: str, digits: int, terms: int, brackets: bool, numbers: tuple[str, ...]
    ) -> Item:
        kind = rng.choice(numbers)
        writer = _Writer(rng, kind, operations, digits)
        expression = writer.tree(terms) if brackets else writer.flat(terms)
        times, over = rng.choice(_SIGNS)
        text = expression.text.replace("*", times)
        if kind != "fractions":  # there a/b is a number
            text = text.replace("/", over)
        question = rng.choice(_ASKS).format(text) + _FORMS[kind]
        answer = decimal(expression.value) if kind == "decimals" else shown(expression.value)
        return Item(question=question, answer=answer, key=kind)


class _Writer:
    """Draws expressions of one kind of number."""

    def __init__(self, rng: Random, kind: str, operations: str, digits: int) -> None:
        self.rng, self.kind, self.digits = rng, kind, digits
        self.power = "^" in operations
        self.joins = [sign for sign in operations if sign != "^"]

    def literal(self) -> Expression:
        rng, digits = self.rng, self.digits
        length = rng.randint((digits + 1) // 2, digits)
        number = rng.randint(10 ** (length - 1), 10**length - 1)
        if self.power and rng.random() < 0.2:
            base, exponent = number % 100 or 7, rng.choice((2, 2, 3))
            return Expression(f"{base}^{exponent}", Fraction(base**exponent), _ATOM)
        if self.kind == "decimals":
            return _plain(Fraction(number, 10 ** rng.randint(0, 2)), self.kind)
        if self.kind == "fractions":
            return _plain(Fraction(number % 60 + 1, rng.randint(1, 12)), self.kind)
        return _plain(Fraction(number), self.kind)

    def tree(self, terms: int) -> Expression:
        if terms == 1:
            return self.literal()
        sign = self.rng.choice(self.joins)
        left = self.rng.randint(1, terms - 1)
        if sign == "/":
            return self.quotient(left, terms - left)
        return _joined(self.tree(left), sign, self.tree(terms - left))

    def quotient(self, left: int, right: int) -> Expression:
        divisor = self.tree(right)
        while divisor.value == 0:
            divisor = self.tree(right)
        if self.kind == "fractions":
            return _joined(self.tree(left), "/", divisor)
        quotient = self.rng.randint(2, 10 ** ((self.digits + 1) // 2))
        target = quotient * divisor.value
        if left == 1 or not {"+", "-"} & set(self.joins):
            return _joined(_plain(target, self.kind), "/", divisor)
        part = self.tree(left - 1)
        rest = target - part.value  # what makes the dividend a multiple of the divisor
        sign = "+" if "+" in self.joins else "-"
        return _joined(_joined(part, sign, _plain(rest if sign == "+" else -rest, self.kind)), "/", divisor)

    def flat(self, terms: int) -> Expression:
        """Products and quotients, added and subtracted: nothing that needs brackets."""
        rng = self.rng
        adding = [sign for sign in self.joins if sign in "+-"]
        binding = [sign for sign in self.joins if sign in "*/"]
        sizes = [1]
        for _ in range(terms - 1):  # a term joins the product before it, or begins the next
            if binding and (not adding or rng.random() < 0.5):
                sizes[-1] += 1
            else:
                sizes.append(1)
        total = self.product(sizes[0], binding)
        for size in sizes[1:]:
            total = _joined(total, rng.choice(adding), self.product(size, binding))
        return total

    def product(self, size: int, binding: list[str]) -> Expression:
        signs = [self.rng.choice(binding) for _ in range(size - 1)]
        factors = [self.literal() for _ in signs]
        first = self.literal()
        if "/" in signs and self.kind != "fractions":
            value = Fraction(self.rng.randint(2, 10 ** ((self.digits + 1) // 2)))
            for sign, factor in zip(signs, factors, strict=True):
                value *= factor.value if sign == "/" else 1
            first = _plain(value, self.kind)
        for sign, factor in zip(signs, factors, strict=True):
            first = _joined(first, sign, factor)
        return first


def _plain(value: Fraction, kind: str) -> Expression:
    text = decimal(value) if kind == "decimals" else shown(value)
    if value < 0:
        return Expression(f"({text})", value, _ATOM)
    return Expression(text, value, _PRODUCT if "/" in text else _ATOM)


def _joined(left: Expression, sign: str, right: Expression) -> Expression:
    binds = _SUM if sign in "+-" else _PRODUCT
    before = left.text if left.binds >= binds else f"({left.text})"
    strict = sign in "-/*"  # a - (b + c), a / (b * c); and a * (b / c), so that nobody wonders
    after = right.text if right.binds > binds or (not strict and right.binds >= binds) else f"({right.text})"
    a, b = left.value, right.value
    value = a + b if sign == "+" else a - b if sign == "-" else a * b if sign == "*" else a / b
    return Expression(f"{before} {sign} {after}", value, binds)

r"""Recognize fully evaluated answers, such as 3/4, 2\sqrt{3} or (1, 2), as opposed to calculations like 4 + 99 - 7.

An answer is evaluated if no arithmetic is left to do. It may contain numbers, mixed numbers, fractions of whole
numbers, scientific notation, radicals, multiples of \pi, expanded polynomials, and lists, tuples and equations of
these. Fractions and radicals do not have to be in lowest terms, but a fraction that equals a whole number counts as a
calculation.
"""

from __future__ import annotations

import re
from fractions import Fraction

from palestra.grading.answer_parser import Group, Leaf, Matrix, Node, Relation, Union, normalize, parse_answer
from palestra.grading.exact import ONE, TooLarge, Value
from palestra.grading.expression_parser import Parser, Unsupported
from palestra.grading.units import parse_quantity

_SCIENTIFIC = re.compile(r"-?\s*[1-9](?:\.\d+)?\s*\*\s*10\s*\^\s*(?:\{\s*-?\s*\d+\s*\}|-?\d+)")
_ROOT = re.compile(r"-?\s*(?:\d+|\\frac\{\d+\}\{\d+\})?\s*\\sqrt\s*\[\s*\d+\s*\]\s*\{\s*\d+\s*\}")


def is_evaluated(answer: str) -> bool:
    """Return whether an answer is fully evaluated and not a calculation; words without digits count as evaluated."""
    try:
        return _node(parse_answer(normalize(answer)))
    except TooLarge:
        return False


def _node(node: Node) -> bool:
    match node:
        case Leaf(text):
            return _leaf(text)
        case Group(items=items) | Union(items=items):
            return all(_node(item) for item in items)
        case Matrix(rows):
            return all(_node(entry) for row in rows for entry in row)
        case Relation(sides, operators):
            equation = set(operators) <= {"=", "\\approx"}  # the grader compares the last side of x = 5 or 2 + 3 = 5
            return all(_node(parse_answer(side)) for side in (sides[-1:] if equation else sides))


def _leaf(text: str) -> bool:
    body = parse_quantity(text).body.strip()
    if not re.search(r"\d", body) or _SCIENTIFIC.fullmatch(body) or _ROOT.fullmatch(body):
        return True
    if body.startswith("(") and "*10^" in body:  # `parse_quantity` writes 3 million in this form
        body = body[1:].partition(")*10^")[0]
    try:
        checker = _Checker(body)  # reads the first token, which may be unsupported
        checker.parse()
    except (Unsupported, ZeroDivisionError):
        return False
    return not checker.calculates


class _Checker(Parser):
    """Parser that records whether an expression contains an operation that could be carried out."""

    calculates = False

    def negate(self, value: Value) -> Value:
        number = value.rational()
        self._note(number is not None and number < 0)
        return super().negate(value)

    def add(self, left: Value, right: Value) -> Value:
        self._note(not left.num or not right.num or not left.num.keys().isdisjoint(right.num))
        return super().add(left, right)

    def multiply(self, left: Value, right: Value) -> Value:
        rationals = [factor.rational() is not None for factor in (left, right)]
        if any(rationals):
            other = left if rationals[1] else right
            self._note(all(rationals) or (_is_sum(other) and bool(other.variables())) or _has_coefficient(other))
        else:
            self._note(_is_sum(left) or _is_sum(right) or _share_factor(left, right))
        return super().multiply(left, right)

    def divide(self, top: Value, bottom: Value) -> Value:
        numbers = [side.rational() for side in (top, bottom)]
        self._note(not (_has_no_denominator(top) and _has_no_denominator(bottom)))
        if numbers[0] is not None and numbers[1]:
            self._note(numbers[0].denominator != 1 or numbers[1].denominator != 1 or numbers[0] % numbers[1] == 0)
        else:
            self._note(top.num.keys() == bottom.num.keys())
        return super().divide(top, bottom)

    def power(self, base: Value, exponent: Fraction) -> Value:
        result = super().power(base, exponent)
        if base.rational() is not None:
            self._note(result.rational() is not None)
        else:
            self._note(_is_sum(base) or _has_coefficient(base) or any(radicand != 1 for radicand, _, _ in base.num))
        return result

    def square_root(self, radicand: Value) -> Value:
        root = super().square_root(radicand)
        self._note(root.rational() is not None)
        return root

    def apply(self, function: str, value: Value) -> Value:
        self._note(True)
        return super().apply(function, value)

    def _note(self, calculates: bool) -> None:
        self.calculates = self.calculates or calculates


def _is_sum(value: Value) -> bool:
    return len(value.num) > 1


def _has_no_denominator(value: Value) -> bool:
    return value.den == {ONE: 1}


def _has_coefficient(value: Value) -> bool:
    r"""Return whether the value is a multiple of variables or constants, such as 3x; \sqrt{12} = 2\sqrt{3} is not."""
    return any(abs(factor) != 1 for (radicand, _, _), factor in value.num.items() if radicand == 1) and not _is_sum(
        value
    )


def _share_factor(left: Value, right: Value) -> bool:
    """Return whether two factors can be combined, as in x * x or the product of two square roots."""
    for radicand, imaginary, powers in left.num:
        for other_radicand, other_imaginary, other_powers in right.num:
            names = {name for name, _ in powers} & {name for name, _ in other_powers}
            if names or (imaginary and other_imaginary) or (radicand != 1 and other_radicand != 1):
                return True
    return False

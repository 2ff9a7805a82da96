"""Exact values that can be compared without a computer algebra system.

Values are quotients of polynomials with rational coefficients, whose monomials may contain the square root of an
integer, the imaginary unit, pi, e and variables. Square roots of distinct squarefree integers are linearly independent
over the rationals, so that every polynomial has a unique form, and two values are equal if their cross products agree
term by term. Comparisons therefore need no rounding and no search, and take bounded time. Other expressions
(logarithms, cube roots, roots of variables) cannot be represented.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

Monomial = tuple[int, int, tuple[tuple[str, int], ...]]  # squarefree radicand, power of i (0 or 1), variables
Poly = dict[Monomial, Fraction]

ONE: Monomial = (1, 0, ())
MAX_BITS = 16_000  # maximum size of a numerator or denominator
MAX_TERMS = 120
MAX_RADICAND = 10**12
PI, E = "\\pi", "e"

_DIGITS = 60
_CONTEXT = Context(prec=_DIGITS)
_CONSTANTS = {
    PI: Decimal("3.14159265358979323846264338327950288419716939937510582097494459"),
    E: Decimal("2.71828182845904523536028747135266249775724709369995957496696763"),
}


class TooLarge(Exception):
    """A value or a text exceeds the supported size."""


class Value:
    """A quotient of two polynomials; immutable."""

    __slots__ = ("den", "num")

    def __init__(self, num: Poly, den: Poly | None = None) -> None:
        self.num = num
        self.den = den or {ONE: Fraction(1)}

    @classmethod
    def of(cls, number: Fraction | int) -> Value:
        return cls({ONE: Fraction(number)} if number else {})

    @classmethod
    def symbol(cls, name: str) -> Value:
        return cls({(1, 0, ((name, 1),)): Fraction(1)})

    @classmethod
    def imaginary(cls) -> Value:
        return cls({(1, 1, ()): Fraction(1)})

    def rational(self) -> Fraction | None:
        """Return the value if it is a rational number, else None."""
        num, den = _constant(self.num), _constant(self.den)
        if num is None or not den:
            return None
        return num / den

    def variables(self) -> set[str]:
        """Return the names of the variables; pi and e do not count as variables."""
        names = {name for poly in (self.num, self.den) for (_, _, powers) in poly for name, _ in powers}
        return names - {PI, E}

    def __add__(self, other: Value) -> Value:
        if self.den == other.den:
            return Value(_add(self.num, other.num), self.den)
        num = _add(_multiply(self.num, other.den), _multiply(other.num, self.den))
        return Value(num, _multiply(self.den, other.den))

    def __neg__(self) -> Value:
        return Value({monomial: -factor for monomial, factor in self.num.items()}, self.den)

    def __sub__(self, other: Value) -> Value:
        return self + -other

    def __mul__(self, other: Value) -> Value:
        return Value(_multiply(self.num, other.num), _multiply(self.den, other.den))

    def __truediv__(self, other: Value) -> Value:
        if not other.num:
            raise ZeroDivisionError
        return Value(_multiply(self.num, other.den), _multiply(self.den, other.num))

    def same(self, other: Value) -> bool:
        """Return whether two values are equal."""
        return _multiply(self.num, other.den) == _multiply(other.num, self.den)

    def ratio(self, other: Value) -> Value | None:
        """Return self / other if the quotient has no variables, else None; used to recognize equivalent equations."""
        left, right = _multiply(self.num, other.den), _multiply(other.num, self.den)
        if not left or not right:
            return None
        left_factor, right_factor = _leading(left), _leading(right)
        same = _multiply(left, right_factor) == _multiply(right, left_factor)
        return Value(left_factor, right_factor) if same else None

    def power(self, exponent: Fraction) -> Value | None:
        """Return the power, or None if it cannot be represented."""
        if exponent.denominator == 2:
            root = self.root()
            return None if root is None else root.power(Fraction(exponent.numerator))
        if exponent.denominator != 1:
            return None
        times = exponent.numerator
        if times < 0:
            return (Value.of(1) / self).power(-exponent)
        if times * _bits(self) > MAX_BITS:
            raise TooLarge(f"the exponent {times if times < 10**9 else 'above a billion'} is too large")
        result, base = Value.of(1), self
        while times:
            if times & 1:
                result = result * base
            times >>= 1
            if times:
                base = base * base
        return result

    def root(self) -> Value | None:
        """Return the square root of a rational number, or None for other values."""
        number = self.rational()
        if number is None:
            return None
        product = abs(number.numerator) * number.denominator  # sqrt(p/q) = sqrt(pq)/q
        if product == 0:
            return Value.of(0)
        outside, inside = _squarefree(product)
        return Value({(inside, int(number < 0), ()): Fraction(outside, number.denominator)})

    def decimal(self) -> Decimal | None:
        """Return the value with about fifty digits, or None if it has variables or is not real."""
        num, den = _approximate(self.num), _approximate(self.den)
        if num is None or not den:
            return None
        return _CONTEXT.divide(num, den)


def _constant(poly: Poly) -> Fraction | None:
    if not poly:
        return Fraction(0)
    return poly.get(ONE) if len(poly) == 1 else None


def _add(a: Poly, b: Poly) -> Poly:
    total = dict(a)
    for monomial, factor in b.items():
        summed = total.get(monomial, 0) + factor
        if summed:
            total[monomial] = _bounded(summed)
        else:
            total.pop(monomial, None)
    return total


def _multiply(a: Poly, b: Poly) -> Poly:
    if len(a) == 1 and a.get(ONE) == 1:
        return b
    if len(b) == 1 and b.get(ONE) == 1:
        return a
    if len(a) * len(b) > MAX_TERMS * 4:
        raise TooLarge("the expression has too many terms")
    total: Poly = {}
    for (root_a, i_a, powers_a), factor_a in a.items():
        for (root_b, i_b, powers_b), factor_b in b.items():
            shared = math.gcd(root_a, root_b)
            factor = factor_a * factor_b * shared
            if i_a and i_b:
                factor = -factor
            key = (root_a // shared * (root_b // shared), i_a ^ i_b, _multiply_powers(powers_a, powers_b))
            summed = total.get(key, 0) + factor
            if summed:
                total[key] = _bounded(summed)
            else:
                total.pop(key, None)
    if len(total) > MAX_TERMS:
        raise TooLarge("the expression has too many terms")
    return total


def _multiply_powers(a: tuple[tuple[str, int], ...], b: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    if not a:
        return b
    if not b:
        return a
    powers = dict(a)
    for name, power in b:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted((name, power) for name, power in powers.items() if power))


def _bounded(number: Fraction) -> Fraction:
    if number.numerator.bit_length() > MAX_BITS or number.denominator.bit_length() > MAX_BITS:
        raise TooLarge("a number has thousands of digits")
    return number


def _bits(value: Value) -> int:
    """Estimate how many bits a power of the value gains when its exponent is incremented."""
    polys = (value.num, value.den)
    digits = max((f.numerator.bit_length() + f.denominator.bit_length() for p in polys for f in p.values()), default=0)
    terms = max(len(poly) for poly in polys)
    if terms <= 1 and digits <= 2:
        return 1 if any(monomial != ONE for poly in polys for monomial in poly) else 0
    return digits + 200 * (terms - 1)


def _leading(poly: Poly) -> Poly:
    """Return the leading coefficient with respect to the variables; it may contain roots, pi and e."""

    def variables(monomial: Monomial) -> tuple[tuple[str, int], ...]:
        return tuple(power for power in monomial[2] if power[0] not in (PI, E))

    top = max(variables(monomial) for monomial in poly)
    coefficient: Poly = {}
    for monomial, factor in poly.items():
        if variables(monomial) == top:
            constants = tuple(power for power in monomial[2] if power[0] in (PI, E))
            coefficient[(monomial[0], monomial[1], constants)] = factor
    return coefficient


def _squarefree(number: int) -> tuple[int, int]:
    """Return (a, b) with number = a * a * b and b squarefree."""
    if number > MAX_RADICAND:
        whole = math.isqrt(number)
        if whole * whole == number and number.bit_length() <= MAX_BITS:
            return whole, 1
        raise TooLarge("the radicand has too many digits")
    outside, inside, factor = 1, 1, 2
    while factor * factor * factor <= number:
        while number % (factor * factor) == 0:
            number //= factor * factor
            outside *= factor
        if number % factor == 0:
            number //= factor
            inside *= factor
        factor += 1 if factor == 2 else 2
    whole = math.isqrt(number)  # the remaining number has at most two prime factors
    if whole * whole == number:
        return outside * whole, inside
    return outside, inside * number


def _approximate(poly: Poly) -> Decimal | None:
    total = Decimal(0)
    for (radicand, imaginary, powers), factor in poly.items():
        if imaginary or any(name not in _CONSTANTS for name, _ in powers):
            return None
        term = _CONTEXT.divide(Decimal(factor.numerator), Decimal(factor.denominator))
        term = _CONTEXT.multiply(term, _CONTEXT.sqrt(Decimal(radicand)))
        for name, power in powers:
            term = _CONTEXT.multiply(term, _CONTEXT.power(_CONSTANTS[name], power))
        total = _CONTEXT.add(total, term)
    return total

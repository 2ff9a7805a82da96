"""LaTeX or plain arithmetic -> an exact value, decided without a computer algebra system.

Values are quotients of polynomials whose coefficients are rational and whose monomials may carry a square root of a
whole number, the imaginary unit, pi, e and variables. Products of distinct square roots are independent over the
rationals, so a polynomial has one form only and two values are equal where they agree crosswise, term by term: no
rounding, no search, bounded work. What lies outside (logarithms, cube roots, roots of variables) is None.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction

Monomial = tuple[int, int, tuple[tuple[str, int], ...]]  # squarefree radicand, power of i (0 or 1), variables
Poly = dict[Monomial, Fraction]

ONE: Monomial = (1, 0, ())
MAX_BITS = 16_000  # of a numerator or denominator
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
    """A value, or the text of one, that no answer needs."""


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
        """The number it is, where it is a rational one."""
        num, den = _constant(self.num), _constant(self.den)
        if num is None or not den:
            return None
        return num / den

    def variables(self) -> set[str]:
        """Names in it, without pi and e."""
        names = {name for poly in (self.num, self.den) for (_, _, powers) in poly for name, _ in powers}
        return names - {PI, E}

    def __add__(self, other: Value) -> Value:
        if self.den == other.den:
            return Value(_added(self.num, other.num), self.den)
        num = _added(_times(self.num, other.den), _times(other.num, self.den))
        return Value(num, _times(self.den, other.den))

    def __neg__(self) -> Value:
        return Value({monomial: -factor for monomial, factor in self.num.items()}, self.den)

    def __sub__(self, other: Value) -> Value:
        return self + -other

    def __mul__(self, other: Value) -> Value:
        return Value(_times(self.num, other.num), _times(self.den, other.den))

    def __truediv__(self, other: Value) -> Value:
        if not other.num:
            raise ZeroDivisionError
        return Value(_times(self.num, other.den), _times(self.den, other.num))

    def same(self, other: Value) -> bool:
        """Equal as values."""
        return _times(self.num, other.den) == _times(other.num, self.den)

    def ratio(self, other: Value) -> Value | None:
        """What `other` is multiplied by to be this, where that has no variables: the same equation, set to zero."""
        left, right = _times(self.num, other.den), _times(other.num, self.den)
        if not left or not right:
            return None
        one, two = _leading(left), _leading(right)
        return Value(one, two) if _times(left, two) == _times(right, one) else None

    def power(self, exponent: Fraction) -> Value | None:
        """None where the result is of another kind."""
        if exponent.denominator == 2:
            root = self.root()
            return None if root is None else root.power(Fraction(exponent.numerator))
        if exponent.denominator != 1:
            return None
        times = exponent.numerator
        if times < 0:
            return (Value.of(1) / self).power(-exponent)
        if times * _bits(self) > MAX_BITS:
            raise TooLarge(f"a power with exponent {times if times < 10**9 else 'beyond a billion'}")
        result, base = Value.of(1), self
        while times:
            if times & 1:
                result = result * base
            times >>= 1
            if times:
                base = base * base
        return result

    def root(self) -> Value | None:
        """The square root of a rational number; None for anything else."""
        number = self.rational()
        if number is None:
            return None
        product = abs(number.numerator) * number.denominator  # sqrt(p/q) = sqrt(pq)/q
        if product == 0:
            return Value.of(0)
        outside, inside = _squarefree(product)
        return Value({(inside, int(number < 0), ()): Fraction(outside, number.denominator)})

    def decimal(self) -> Decimal | None:
        """Its value to some fifty digits; None where it has variables or is not real."""
        num, den = _approximate(self.num), _approximate(self.den)
        if num is None or not den:
            return None
        return _CONTEXT.divide(num, den)


def _constant(poly: Poly) -> Fraction | None:
    if not poly:
        return Fraction(0)
    return poly.get(ONE) if len(poly) == 1 else None


def _added(a: Poly, b: Poly) -> Poly:
    total = dict(a)
    for monomial, factor in b.items():
        summed = total.get(monomial, 0) + factor
        if summed:
            total[monomial] = _bounded(summed)
        else:
            total.pop(monomial, None)
    return total


def _times(a: Poly, b: Poly) -> Poly:
    if len(a) == 1 and a.get(ONE) == 1:
        return b
    if len(b) == 1 and b.get(ONE) == 1:
        return a
    if len(a) * len(b) > MAX_TERMS * 4:
        raise TooLarge("an expression with too many terms")
    total: Poly = {}
    for (root_a, i_a, powers_a), factor_a in a.items():
        for (root_b, i_b, powers_b), factor_b in b.items():
            shared = math.gcd(root_a, root_b)
            factor = factor_a * factor_b * shared
            if i_a and i_b:
                factor = -factor
            key = (root_a // shared * (root_b // shared), i_a ^ i_b, _merged(powers_a, powers_b))
            summed = total.get(key, 0) + factor
            if summed:
                total[key] = _bounded(summed)
            else:
                total.pop(key, None)
    if len(total) > MAX_TERMS:
        raise TooLarge("an expression with too many terms")
    return total


def _merged(a: tuple[tuple[str, int], ...], b: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
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
        raise TooLarge("a number of thousands of digits")
    return number


def _bits(value: Value) -> int:
    """How much a power of it grows with the exponent, roughly."""
    polys = (value.num, value.den)
    digits = max((f.numerator.bit_length() + f.denominator.bit_length() for p in polys for f in p.values()), default=0)
    terms = max(len(poly) for poly in polys)
    if terms <= 1 and digits <= 2:
        return 1 if any(monomial != ONE for poly in polys for monomial in poly) else 0
    return digits + 200 * (terms - 1)


def _leading(poly: Poly) -> Poly:
    """The coefficient, roots and all, of the greatest product of variables; pi and e count as numbers."""

    def variables(monomial: Monomial) -> tuple[tuple[str, int], ...]:
        return tuple(power for power in monomial[2] if power[0] not in (PI, E))

    top = max(variables(monomial) for monomial in poly)
    found: Poly = {}
    for monomial, factor in poly.items():
        if variables(monomial) == top:
            constants = tuple(power for power in monomial[2] if power[0] in (PI, E))
            found[(monomial[0], monomial[1], constants)] = factor
    return found


def _squarefree(number: int) -> tuple[int, int]:
    """(a, b) with number = a * a * b and b without square factors."""
    if number > MAX_RADICAND:
        whole = math.isqrt(number)
        if whole * whole == number and number.bit_length() <= MAX_BITS:
            return whole, 1
        raise TooLarge("a root of a number of many digits")
    outside, inside, factor = 1, 1, 2
    while factor * factor * factor <= number:
        while number % (factor * factor) == 0:
            number //= factor * factor
            outside *= factor
        if number % factor == 0:
            number //= factor
            inside *= factor
        factor += 1 if factor == 2 else 2
    whole = math.isqrt(number)  # what is left has two prime factors at most
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

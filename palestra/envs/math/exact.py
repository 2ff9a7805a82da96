"""Format exact numbers, tuples and polynomials for questions and answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from random import Random

Number = int | Fraction


def format_number(value: Number) -> str:
    """Return a number as text, such as `7` or `-3/4`."""
    value = Fraction(value)
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def format_decimal(value: Number) -> str:
    """Return a fraction as a decimal without trailing zeros; its denominator must have no prime factors but 2 and 5."""
    value = Fraction(value)
    places, rest = 0, value.denominator
    while rest % 10 == 0:
        places, rest = places + 1, rest // 10
    extra = 0
    while (10**extra) % rest:
        extra += 1
    places += extra
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else sign + digits


def format_tuple(values: Iterable[Number]) -> str:
    """Return numbers as a tuple, such as `(3, -1/2)`."""
    return f"({', '.join(map(format_number, values))})"


def format_sum(terms: Iterable[tuple[Number, str]]) -> str:
    """Format a sum of terms (coefficient, symbol), such as `3x^2 - x + 5`; an empty sum is `0`."""
    text = ""
    for factor, symbol in terms:
        if factor == 0:
            continue
        size = format_number(abs(Fraction(factor)))
        if "/" in size and symbol:
            size = f"({size})"
        body = symbol if symbol and size == "1" else size + symbol
        if not text:
            text = f"-{body}" if factor < 0 else body
        else:
            text += f" {'-' if factor < 0 else '+'} {body}"
    return text or "0"


def format_polynomial(coefficients: Sequence[Number], variable: str = "x") -> str:
    """Format a polynomial with the highest power first; `coefficients` starts with the constant term."""
    powers = ["", variable, *(f"{variable}^{power}" for power in range(2, len(coefficients)))]
    pairs = list(zip(coefficients, powers, strict=False))
    return format_sum(reversed(pairs))


def nonzero(rng: Random, size: int, *, low: int = 1) -> int:
    """Return a random integer of either sign whose absolute value is between `low` and `size`."""
    return rng.choice((-1, 1)) * rng.randint(low, size)

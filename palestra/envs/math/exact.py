"""Numbers and signed sums as text: exact, in the form that questions show and graders read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from random import Random

Number = int | Fraction


def shown(value: Number) -> str:
    """`7`, `-3/4`."""
    value = Fraction(value)
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def decimal(value: Number) -> str:
    """A fraction whose denominator has no prime but 2 and 5, as a decimal without needless zeros."""
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


def tuple_of(values: Iterable[Number]) -> str:
    """`(3, -1/2)`."""
    return f"({', '.join(map(shown, values))})"


def signed_sum(terms: Iterable[tuple[Number, str]]) -> str:
    """Coefficients and what they stand before, as one writes them: `3x^2 - x + 5`. No terms: `0`."""
    text = ""
    for factor, symbol in terms:
        if factor == 0:
            continue
        size = shown(abs(Fraction(factor)))
        if "/" in size and symbol:
            size = f"({size})"
        body = symbol if symbol and size == "1" else size + symbol
        if not text:
            text = f"-{body}" if factor < 0 else body
        else:
            text += f" {'-' if factor < 0 else '+'} {body}"
    return text or "0"


def polynomial(coefficients: Sequence[Number], variable: str = "x") -> str:
    """Coefficients from the constant up, written from the highest power down."""
    powers = ["", variable, *(f"{variable}^{power}" for power in range(2, len(coefficients)))]
    pairs = list(zip(coefficients, powers, strict=False))
    return signed_sum(reversed(pairs))


def nonzero(rng: Random, size: int, *, low: int = 1) -> int:
    """A whole number other than 0, of either sign, `low` to `size` in size."""
    return rng.choice((-1, 1)) * rng.randint(low, size)

"""Number theory questions: divisors, primes, remainders, congruences and number bases."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import gcd, isqrt, lcm, prod
from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.math.base import MathTask
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_int, check_subset

DIGITS = "0123456789ABCDEF"
QuestionAnswer = tuple[str, str]
_SIEVE = 100_000  # upper limit of the prime table


class NumberTheory(MathTask):
    """Questions about common divisors, modular arithmetic, the Chinese remainder theorem, primes and number bases.

    `kinds` is a subset of KINDS; `digits` is the approximate number of digits. There are several hundred thousand
    different items at the easy level and millions at the other levels.
    """

    levels: ClassVar[Levels] = {
        "easy": {"kinds": ("gcd", "lcm", "remainder", "divisors", "next_prime", "base"), "digits": 4},
        "medium": {
            "kinds": ("gcd", "lcm", "power", "inverse", "crt", "divisors", "divisor_sum", "largest_prime", "base"),
            "digits": 5,
        },
        "hard": {
            "kinds": (
                "gcd3",
                "power",
                "tower",
                "inverse",
                "crt",
                "divisor_sum",
                "totient",
                "order",
                "congruence",
                "diophantine",
                "factorial",
                "count_coprime",
            ),
            "digits": 6,
        },
    }

    def __init__(
        self,
        *,
        level: str = "easy",
        kinds: tuple[str, ...] | None = None,
        digits: int | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        super().__init__(level, {"kinds": kinds, "digits": digits}, **options)

    @classmethod
    def check(cls, *, kinds: Any, digits: Any) -> None:
        check_subset("kinds", kinds, KINDS)
        check_int("digits", digits, 2, 30)

    @classmethod
    def generate(cls, rng: Random, *, kinds: tuple[str, ...], digits: int) -> Item:
        kind = rng.choice(kinds)
        question, answer = KINDS[kind](rng, digits)
        return Item(question=question, answer=answer, key=kind)


def _number(rng: Random, digits: int) -> int:
    return rng.randint(10 ** (digits - 1), 10**digits - 1)


@lru_cache(maxsize=1)
def primes() -> tuple[int, ...]:
    """Return the primes below _SIEVE."""
    sieve = bytearray([1]) * _SIEVE
    sieve[0] = sieve[1] = 0
    for p in range(2, isqrt(_SIEVE) + 1):
        if sieve[p]:
            sieve[p * p :: p] = bytes(len(range(p * p, _SIEVE, p)))
    return tuple(p for p in range(_SIEVE) if sieve[p])


def _factored(rng: Random, digits: int) -> dict[int, int]:
    """Return {prime: exponent} for a random number with about `digits` digits and at most one large prime factor."""
    limit = 10**digits
    small = primes()
    powers: dict[int, int] = {}
    product = 1
    for _ in range(rng.randint(1, digits // 2 + 1)):
        p = small[rng.randrange(6)]
        if product * p * 10 < limit:
            powers[p] = powers.get(p, 0) + 1
            product *= p
    top = bisect(small, min(limit // product, max(10, 10 ** (digits - 2))))
    p = small[rng.randrange(top)]
    powers[p] = powers.get(p, 0) + 1
    return powers


def _value(powers: Mapping[int, int]) -> int:
    return prod(p**power for p, power in powers.items())


def _gcd(rng: Random, digits: int) -> QuestionAnswer:
    common = _value(_factored(rng, max(1, digits // 2)))
    a, b = (common * rng.randint(2, 10 ** max(1, digits - digits // 2)) for _ in range(2))
    question = rng.choice(("What is the greatest common divisor of {} and {}?", "Find gcd({}, {})."))
    return question.format(a, b), str(gcd(a, b))


def _gcd3(rng: Random, digits: int) -> QuestionAnswer:
    common = _value(_factored(rng, max(1, digits // 2)))
    a, b, c = (common * rng.randint(2, 10 ** max(1, digits - digits // 2)) for _ in range(3))
    return f"What is the greatest common divisor of the three numbers {a}, {b} and {c}?", str(gcd(a, b, c))


def _lcm(rng: Random, digits: int) -> QuestionAnswer:
    common = rng.randint(2, 10 ** max(1, digits // 2))
    a, b = (common * rng.randint(2, 10 ** max(1, digits // 2)) for _ in range(2))
    question = rng.choice(("What is the least common multiple of {} and {}?", "Find lcm({}, {})."))
    return question.format(a, b), str(lcm(a, b))


def _remainder(rng: Random, digits: int) -> QuestionAnswer:
    a, b, m = _number(rng, digits), _number(rng, digits), rng.randint(3, 99)
    product = f"{a} \u00d7 {b}"
    form, value = rng.choice(
        [(product, a * b), (f"{a} + {b}", a + b), (f"{a}^2 + {b}", a * a + b), (f"{product} + {a}", a * b + a)]
    )
    return f"What is the remainder when {form} is divided by {m}?", str(value % m)


def _power(rng: Random, digits: int) -> QuestionAnswer:
    base, exponent, m = (
        rng.randint(2, 10 ** (digits - 1)),
        _number(rng, digits),
        rng.randint(7, 10 ** (digits - 2) + 90),
    )
    if rng.random() < 0.2:
        question = f"What is the last digit of {base}^{exponent}, written in base ten?"
        return question, str(pow(base, exponent, 10))
    return f"What is the remainder when {base}^{exponent} is divided by {m}?", str(pow(base, exponent, m))


def _tower(rng: Random, digits: int) -> QuestionAnswer:
    a, b, m = rng.randint(2, 99), rng.randint(2, 30), rng.randint(7, 10 ** (digits - 2) + 90)
    c = rng.randint(2, 30)
    question = f"What is the remainder when {a}^({b}^{c}) is divided by {m}? The exponent is {b} to the power of {c}."
    return question, str(pow(a, b**c, m))


def _inverse(rng: Random, digits: int) -> QuestionAnswer:
    m = _number(rng, digits)
    a = rng.randint(2, m - 1)
    while gcd(a, m) != 1:
        a = rng.randint(2, m - 1)
    question = rng.choice(
        (
            "Find the inverse of {a} modulo {m}, as a number from 1 to {top}.",
            "Find the x from 1 to {top} for which {a}x leaves the remainder 1 when divided by {m}.",
        )
    )
    return question.format(a=a, m=m, top=m - 1), str(pow(a, -1, m))


def _crt(rng: Random, digits: int) -> QuestionAnswer:
    moduli: list[int] = []
    while len(moduli) < (2 if digits < 4 else 3):
        m = rng.randint(3, 10 ** max(1, digits // 3) + 20)
        if all(gcd(m, other) == 1 for other in moduli):
            moduli.append(m)
    n = rng.randrange(prod(moduli))
    remainders = [f"remainder {n % m} when divided by {m}" for m in moduli]
    listed = f"{', '.join(remainders[:-1])} and {remainders[-1]}"
    return f"What is the smallest non-negative whole number that leaves {listed}?", str(n)


def _divisors(rng: Random, digits: int) -> QuestionAnswer:
    powers = _factored(rng, digits + 1)
    count = prod(power + 1 for power in powers.values())
    return f"How many positive divisors does {_value(powers)} have, including 1 and the number itself?", str(count)


def _divisor_sum(rng: Random, digits: int) -> QuestionAnswer:
    powers = _factored(rng, digits + 1)
    total = prod((p ** (power + 1) - 1) // (p - 1) for p, power in powers.items())
    n = _value(powers)
    return f"What is the sum of all positive divisors of {n}, including 1 and {n}?", str(total)


def _largest_prime(rng: Random, digits: int) -> QuestionAnswer:
    powers = _factored(rng, digits + 1)
    n = _value(powers)
    which = rng.choice(("largest", "smallest", "sum"))
    if which == "sum":
        return f"What is the sum of the distinct prime factors of {n}?", str(sum(powers))
    return f"What is the {which} prime factor of {n}?", str(max(powers) if which == "largest" else min(powers))


def _totient(rng: Random, digits: int) -> QuestionAnswer:
    powers = _factored(rng, digits)
    n = _value(powers)
    phi = prod((p - 1) * p ** (power - 1) for p, power in powers.items())
    return f"How many whole numbers from 1 to {n} have no common divisor with {n} other than 1?", str(phi)


def _count_coprime(rng: Random, digits: int) -> QuestionAnswer:
    """Generate a question that can be solved by inclusion-exclusion over several primes."""
    chosen = sorted(rng.sample(primes()[:12], rng.randint(2, 4)))
    top = _number(rng, max(2, digits - 1))
    count = 0
    for subset in range(1 << len(chosen)):
        divisor = prod(p for i, p in enumerate(chosen) if subset >> i & 1)
        count += (-1) ** subset.bit_count() * (top // divisor)
    listed, last = ", ".join(map(str, chosen[:-1])), chosen[-1]
    divisors = f"neither {listed} nor {last}" if len(chosen) == 2 else f"none of {listed} and {last}"
    return f"How many whole numbers from 1 to {top} are divisible by {divisors}?", str(count)


def _next_prime(rng: Random, digits: int) -> QuestionAnswer:
    n = _number(rng, min(digits, 12))
    prime = n + 1
    while not is_prime(prime):
        prime += 1
    return f"What is the smallest prime number greater than {n}?", str(prime)


def is_prime(n: int) -> bool:
    """Run the Miller-Rabin test with bases that make it exact for every n below 3 * 10^24."""
    if n < 2:
        return False
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
    for p in bases:
        if n % p == 0:
            return n == p
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in bases:
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def _order(rng: Random, digits: int) -> QuestionAnswer:
    top = 10 ** max(2, min(digits - 2, 4))
    small = primes()
    p = small[rng.randrange(bisect(small, top // 10), bisect(small, top))]
    a = rng.randint(2, p - 1)
    question = (
        f"What is the smallest positive whole number k for which {a}^k leaves the remainder 1 when divided by {p}?"
    )
    return question, str(order_modulo(a, p))


def order_modulo(a: int, p: int) -> int:
    """Return the multiplicative order of `a` modulo the prime `p`, computed by removing prime factors from p - 1."""
    order = rest = p - 1
    q = 2
    while rest > 1:
        if q * q > rest:
            q = rest
        while rest % q == 0:
            rest //= q
            if pow(a, order // q, p) == 1:
                order //= q
        q += 1
    return order


def _congruence(rng: Random, digits: int) -> QuestionAnswer:
    """Generate a question about a x = b (mod m), which has either no solutions or gcd(a, m) solutions."""
    common = rng.randint(2, 12)
    m = common * rng.randint(10, 10 ** max(2, digits - 2))
    a = common * rng.randint(2, 10 ** max(1, digits - 3))
    shared = gcd(a, m)
    x = rng.randrange(m)
    b = a * x % m
    if rng.random() < 0.15 and shared > 1:
        b = (b + rng.randint(1, shared - 1)) % m  # ensures that b is not a multiple of the common divisor
    solvable = b % shared == 0
    top = m - 1
    if solvable and rng.random() < 0.5:
        smallest = b // shared * pow(a // shared, -1, m // shared) % (m // shared)
        question = f"Find the smallest x from 0 to {top} for which {a}x leaves the remainder {b} when divided by {m}."
        return question, str(smallest)
    question = f"For how many whole numbers x from 0 to {top} does {a}x leave the remainder {b} when divided by {m}?"
    return question, str(shared if solvable else 0)


def _diophantine(rng: Random, digits: int) -> QuestionAnswer:
    """Generate a question about the number of non-negative integer solutions to a x + b y = n."""
    a, b = rng.randint(3, 40), rng.randint(3, 40)
    n = rng.randint(10, 10 ** max(2, min(digits - 2, 4)))
    count = sum((n - a * x) % b == 0 for x in range(n // a + 1))
    question = f"How many pairs (x, y) of non-negative whole numbers satisfy {a}x + {b}y = {n}?"
    return question, str(count)


def _factorial(rng: Random, digits: int) -> QuestionAnswer:
    n = _number(rng, max(2, digits - 1))
    if rng.random() < 0.4:
        return f"How many trailing zeros does {n}! (the factorial of {n}) have?", str(_power_in_factorial(n, 5))
    p = rng.choice(primes()[:15])
    question = f"What is the largest k for which {p}^k divides {n}! (the factorial of {n})?"
    return question, str(_power_in_factorial(n, p))


def _power_in_factorial(n: int, p: int) -> int:
    count = 0
    while n:
        n //= p
        count += n
    return count


def _base(rng: Random, digits: int) -> QuestionAnswer:
    n, base = _number(rng, digits), rng.choice((2, 3, 4, 5, 6, 7, 8, 9, 16))
    written = in_base(n, base)
    which = rng.randrange(3)
    if which == 0:
        return f"The number {written} is written in base {base}. What is it in base ten?", str(n)
    if which == 1:
        question = f"What is the sum of the digits of {n} (base ten) when it is written in base {base}?"
        if base == 16:
            question += " The digits A to F stand for 10 to 15."
        return question + " Give the sum in base ten.", str(sum(DIGITS.index(digit) for digit in written))
    return f"How many digits does {n} (base ten) have when it is written in base {base}?", str(len(written))


def in_base(n: int, base: int) -> str:
    digits = ""
    while n:
        n, digit = divmod(n, base)
        digits = DIGITS[digit] + digits
    return digits or "0"


KINDS: Mapping[str, Callable[[Random, int], QuestionAnswer]] = {
    "gcd": _gcd,
    "gcd3": _gcd3,
    "lcm": _lcm,
    "remainder": _remainder,
    "power": _power,
    "tower": _tower,
    "inverse": _inverse,
    "crt": _crt,
    "divisors": _divisors,
    "divisor_sum": _divisor_sum,
    "largest_prime": _largest_prime,
    "totient": _totient,
    "count_coprime": _count_coprime,
    "next_prime": _next_prime,
    "order": _order,
    "congruence": _congruence,
    "diophantine": _diophantine,
    "factorial": _factorial,
    "base": _base,
}

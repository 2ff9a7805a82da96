"""Verify answers by brute force and with sympy, using the numbers in the text."""

from __future__ import annotations

import re
from math import gcd, lcm
from random import Random

import pytest
import sympy  # type: ignore[import-untyped]

from palestra.envs.math.number_theory import KINDS, NumberTheory


def brute(kind: str, text: str, n: list[int]) -> int:
    """Compute the answer directly from the definition."""
    if kind in ("gcd", "gcd3"):
        return gcd(*n)
    if kind == "lcm":
        return lcm(*n)
    if kind == "remainder":
        form = re.search(r"when (.*) is divided", text)
        assert form is not None
        return int(eval(form[1].replace("\u00d7", "*").replace("^", "**"))) % n[-1]
    if kind == "power":
        modulus = 10 if "last digit" in text else n[2]
        result = 1
        for bit in bin(n[1])[2:]:
            result = result * result * (n[0] if bit == "1" else 1) % modulus
        return result
    if kind == "tower":
        result = n[0]
        for _ in range(n[2]):  # a^(b^c) = (...(a^b)^b...)^b
            result = pow(result, n[1], n[3])
        return result
    if kind == "inverse":
        match = re.search(r"(\d+)(?:x| modulo)", text)
        assert match is not None
        return int(sympy.mod_inverse(int(match[1]), n[-1] if "divided" in text else n[1]))
    if kind == "crt":
        rests, moduli = n[0::2], n[1::2]
        solution, step = 0, 1
        for rest, modulus in zip(rests, moduli, strict=True):
            while solution % modulus != rest:
                solution += step
            step *= modulus
        return solution
    if kind == "divisors":
        return int(sympy.divisor_count(n[0]))
    if kind == "divisor_sum":
        return sum(sympy.divisors(n[0]))
    if kind == "largest_prime":
        factors = sympy.primefactors(n[0])
        return sum(factors) if "sum" in text else max(factors) if "largest" in text else min(factors)
    if kind == "totient":
        return int(sympy.totient(n[1]))
    if kind == "count_coprime":
        return sum(all(k % p for p in n[2:]) for k in range(1, n[1] + 1))
    if kind == "next_prime":
        return int(sympy.nextprime(n[0]))
    if kind == "order":
        return int(sympy.n_order(n[0], n[2]))
    if kind == "congruence":
        a, rest, m = n[2:5]
        solutions = [x for x in range(m) if a * x % m == rest]
        return len(solutions) if "how many" in text else solutions[0]
    if kind == "diophantine":
        return sum((n[2] - n[0] * x) % n[1] == 0 for x in range(n[2] // n[0] + 1))
    if kind == "factorial":
        p, top = (5, n[0]) if "zeros" in text else (n[0], n[1])
        count = 0
        for k in range(p, top + 1, p):
            while k % p == 0:
                k, count = k // p, count + 1
        return count
    written = re.search(r"number (\w+) is written in base (\d+)", text)
    if written is not None:
        return int(written[1], int(written[2]))
    base = int(re.findall(r"base (\d+)", text)[-1])
    digits = sympy.ntheory.digits(n[0], base)[1:]
    return sum(digits) if "sum" in text else len(digits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("digits", [4, 5])
def test_against_brute_force(kind: str, digits: int) -> None:
    for seed in range(12):
        item = NumberTheory.generate(Random(seed), kinds=(kind,), digits=digits)
        text = str(item.question)
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        if kind == "inverse" and "Find the x" in text:
            numbers = [numbers[0], numbers[-1]]
        assert brute(kind, text, numbers) == int(item.answer), text


def test_every_kind_is_at_some_level() -> None:
    assert {kind for level in NumberTheory.levels.values() for kind in level["kinds"]} == set(KINDS)


def test_numbers_of_the_question_are_no_result() -> None:
    env = NumberTheory(level="easy", kinds=("gcd", "lcm"))
    for seed in range(60):
        prompt, _ = env.reset(seed=seed)
        numbers = ", ".join(re.findall(r"\d+", str(prompt).partition("\n")[0]))
        for name in (r"\gcd", r"\operatorname{lcm}", "gcd", "lcm"):
            assert not env.fork().step(f"\\boxed{{{name}({numbers})}}").info["success"]
        assert env.step(f"\\boxed{{{name}({numbers}) = {env.item.answer}}}").info["success"]

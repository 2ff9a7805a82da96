"""Generate classic problems on numbers: coins, a knapsack, sequences and the Josephus problem."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from palestra.envs.code.boundaries import Hints
from palestra.envs.code.programs import COUNT, Args, Program, ordinal


def _sampler(low: int, high: int) -> Callable[[Random, Hints], Args]:
    """Return a function that samples a number from `low` to `high`, often near one of the program's constants."""

    def sample(rng: Random, hints: Hints) -> Args:
        near = [number for number in hints.numbers if low <= number <= high]
        return (rng.choice(near) if near and rng.random() < 0.5 else rng.randint(low, high),)

    return sample


def coins(rng: Random) -> Program:
    values = sorted(rng.sample(range(2, 16), rng.randint(2, 4)))
    listed = ", ".join(map(str, values))
    inputs = [(0,), (1,), (values[0],), (values[-1] - 1,), *((rng.randint(5, 120),) for _ in range(COUNT - 4))]
    takes = (("amount", "a non-negative integer"),)
    if rng.random() < 0.5:
        return Program(
            takes=takes,
            task=f"Return the smallest number of coins that add up to the amount, or -1 if it is not possible. Coins "
            f"of these values are available, as many of each as needed: {listed}.",
            code=(
                "best = [0] + [-1] * amount",
                "for total in range(1, amount + 1):",
                f"    for coin in {values}:",
                "        if coin <= total and best[total - coin] >= 0:",
                "            needed = best[total - coin] + 1",
                "            if best[total] < 0 or needed < best[total]:",
                "                best[total] = needed",
                "return best[amount]",
            ),
            inputs=tuple(inputs),
            gives="number",
            sample=_sampler(0, 150),
        )
    return Program(
        takes=takes,
        task=f"Return the number of ways in which coins can add up to the amount, regardless of their order. For the "
        f"amount 0, there is one way. Coins of these values are available, as many of each as needed: {listed}.",
        code=(
            "ways = [1] + [0] * amount",
            f"for coin in {values}:",
            "    for total in range(coin, amount + 1):",
            "        ways[total] += ways[total - coin]",
            "return ways[amount]",
        ),
        inputs=tuple(inputs),
        gives="number",
        sample=_sampler(0, 150),
    )


def knapsack(rng: Random) -> Program:
    bonus = rng.randint(0, 5)

    def case(rng: Random, _: Hints | None = None) -> tuple[Any, Any]:
        items = [[rng.randint(1, 9), rng.randint(1, 20)] for _ in range(rng.randint(1, 7))]
        return items, rng.randint(0, 25)

    inputs: list[Any] = [([], 5), ([[3, 4]], 2), ([[3, 4]], 3), ([[1, 1], [1, 1]], 0)]
    inputs += [case(rng) for _ in range(COUNT - 4)]
    extra = f" An item with an even weight is worth {bonus} more than stated." if bonus else ""
    return Program(
        takes=(("items", "a list of pairs [weight, worth]"), ("limit", "a non-negative integer")),
        task="Choose some of the items, each at most once, so that their weights add up to at most the limit and "
        f"their total worth is as large as possible.{extra} Return the total worth.",
        code=(
            "best = [0] * (limit + 1)",
            "for weight, worth in items:",
            *(["    if weight % 2 == 0:", f"        worth += {bonus}"] if bonus else []),
            "    for room in range(limit, weight - 1, -1):",
            "        best[room] = max(best[room], best[room - weight] + worth)",
            "return best[limit]",
        ),
        inputs=tuple(inputs),
        gives="number",
        sample=case,
    )


def recurrence(rng: Random) -> Program:
    p, q, m, a, b = rng.randint(1, 5), rng.randint(1, 5), rng.randint(7, 999), rng.randint(0, 5), rng.randint(1, 6)
    inputs = [(n,) for n in (0, 1, 2, 3, 10, *(rng.randint(4, 60) for _ in range(COUNT - 5)))]
    return Program(
        takes=(("n", "a non-negative integer"),),
        task=f"A sequence starts with a(0) = {a} and a(1) = {b}. Each later element a(i) is the remainder when "
        f"{p} * a(i - 1) + {q} * a(i - 2) is divided by {m}. Return a(n).",
        code=(
            f"first, second = {a}, {b}",
            "for _ in range(n):",
            f"    first, second = second, ({p} * second + {q} * first) % {m}",
            "return first",
        ),
        inputs=tuple(inputs),
        gives="number",
        sample=_sampler(0, 60),
    )


def circle_game(rng: Random) -> Program:
    step = rng.randint(2, 9)
    start = rng.randint(1, 5)
    inputs = [(n,) for n in (1, 2, 3, 5, *(rng.randint(4, 50) for _ in range(COUNT - 4)))]
    return Program(
        takes=(("n", "a positive integer"),),
        task=f"n people stand in a circle, numbered consecutively from {start}. Counting starts with the first person. "
        f"Every {ordinal(step)} remaining person leaves the circle, and counting continues with the next person, "
        "until only one person is left. Return the number of this person.",
        code=(
            f"people = list(range({start}, {start} + n))",
            "at = 0",
            "while len(people) > 1:",
            f"    at = (at + {step} - 1) % len(people)",
            "    people.pop(at)",
            "return people[0]",
        ),
        inputs=tuple(inputs),
        gives="number",
        sample=_sampler(1, 50),
    )


def collatz(rng: Random) -> Program:
    by, add, limit = rng.randint(2, 5), rng.randint(1, 9), rng.randint(20, 60)
    inputs = [(n,) for n in (1, 2, 3, 7, *(rng.randint(4, 500) for _ in range(COUNT - 4)))]
    return Program(
        takes=(("n", "a positive integer"),),
        task=f"Repeat: if n is even, halve it; otherwise, replace it with the remainder when {by} * n + {add} is "
        f"divided by 1009. Stop as soon as n is at most 1, or after {limit} repetitions. Return the number of "
        "repetitions.",
        code=(
            "count = 0",
            f"while n > 1 and count < {limit}:",
            "    if n % 2 == 0:",
            "        n //= 2",
            "    else:",
            f"        n = ({by} * n + {add}) % 1009",
            "    count += 1",
            "return count",
        ),
        inputs=tuple(inputs),
        gives="number",
        sample=_sampler(1, 1500),
    )

"""Classic problems of counting: coins, a knapsack, sequences, the circle."""

from __future__ import annotations

from random import Random
from typing import Any

from palestra.envs.code.programs import COUNT, Program, ordinal


def coins(rng: Random) -> Program:
    values = sorted(rng.sample(range(2, 16), rng.randint(2, 4)))
    shown = ", ".join(map(str, values))
    inputs = [(0,), (1,), (values[0],), (values[-1] - 1,), *((rng.randint(5, 120),) for _ in range(COUNT - 4))]
    takes = (("amount", "a whole number from 0 up"),)
    if rng.random() < 0.5:
        return Program(
            takes=takes,
            task=f"Return the smallest number of coins that add up to the amount, or -1 if no coins do. There are "
            f"coins of these values, as many of each as needed: {shown}.",
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
        )
    return Program(
        takes=takes,
        task=f"Return in how many ways coins can add up to the amount, where their order does not matter; the amount 0 "
        f"has one way. There are coins of these values, as many of each as needed: {shown}.",
        code=(
            "ways = [1] + [0] * amount",
            f"for coin in {values}:",
            "    for total in range(coin, amount + 1):",
            "        ways[total] += ways[total - coin]",
            "return ways[amount]",
        ),
        inputs=tuple(inputs),
        gives="number",
    )


def knapsack(rng: Random) -> Program:
    bonus = rng.randint(0, 5)

    def case() -> tuple[Any, Any]:
        things = [[rng.randint(1, 9), rng.randint(1, 20)] for _ in range(rng.randint(1, 7))]
        return things, rng.randint(0, 25)

    inputs: list[Any] = [([], 5), ([[3, 4]], 2), ([[3, 4]], 3), ([[1, 1], [1, 1]], 0)]
    inputs += [case() for _ in range(COUNT - 4)]
    extra = f" A thing whose weight is even is worth {bonus} more than that." if bonus else ""
    return Program(
        takes=(("things", "a list of [weight, worth]"), ("limit", "a whole number from 0 up")),
        task="Choose some of the things, each at most once, so that their weights add up to at most the limit and "
        "they are "
        f"worth as much as possible.{extra} Return what they are worth together.",
        code=(
            "best = [0] * (limit + 1)",
            "for weight, worth in things:",
            *(["    if weight % 2 == 0:", f"        worth += {bonus}"] if bonus else []),
            "    for room in range(limit, weight - 1, -1):",
            "        best[room] = max(best[room], best[room - weight] + worth)",
            "return best[limit]",
        ),
        inputs=tuple(inputs),
        gives="number",
    )


def recurrence(rng: Random) -> Program:
    p, q, m, a, b = rng.randint(1, 5), rng.randint(1, 5), rng.randint(7, 999), rng.randint(0, 5), rng.randint(1, 6)
    inputs = [(n,) for n in (0, 1, 2, 3, 10, *(rng.randint(4, 60) for _ in range(COUNT - 5)))]
    return Program(
        takes=(("n", "a whole number from 0 up"),),
        task=f"A sequence begins with a(0) = {a} and a(1) = {b}. Each later element a(i) is the remainder when "
        f"{p} * a(i - 1) + {q} * a(i - 2) is divided by {m}. Return a(n).",
        code=(
            f"first, second = {a}, {b}",
            "for _ in range(n):",
            f"    first, second = second, ({p} * second + {q} * first) % {m}",
            "return first",
        ),
        inputs=tuple(inputs),
        gives="number",
    )


def circle_game(rng: Random) -> Program:
    step = rng.randint(2, 9)
    start = rng.randint(1, 5)
    inputs = [(n,) for n in (1, 2, 3, 5, *(rng.randint(4, 50) for _ in range(COUNT - 4)))]
    return Program(
        takes=(("n", "a whole number from 1 up"),),
        task=f"n people stand in a circle, numbered from {start} on in order. Beginning to count at the first of "
        "them, every "
        f"{ordinal(step)} person still standing leaves, until one is left; counting goes on with the next person "
        "after the one who "
        "left. Return the number of the last one.",
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
    )


def walk(rng: Random) -> Program:
    by, add, limit = rng.randint(2, 5), rng.randint(1, 9), rng.randint(20, 60)
    inputs = [(n,) for n in (1, 2, 3, 7, *(rng.randint(4, 500) for _ in range(COUNT - 4)))]
    return Program(
        takes=(("n", "a whole number from 1 up"),),
        task=f"Repeat: if n is even, halve it; otherwise, replace it by the remainder when {by} * n + {add} is "
        "divided by "
        f"1009. Stop as soon as n is at most 1, or when this was done {limit} times. Return how many times it was "
        "done.",
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
    )

"""Compare reference programs with independent implementations of their descriptions."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import cache
from itertools import combinations, pairwise
from random import Random
from typing import Any

import pytest

from palestra.envs.code import classics_lists, classics_numbers, classics_simulation
from palestra.envs.code.compose import _chain, generate_program
from palestra.envs.code.programs import Program, compile_function, draw_inputs, ordinal, run_program

Numbers = list[int]


def step(sentence: str, xs: Numbers) -> Numbers:
    """Apply an instruction to a list of numbers."""
    k = int(digits[0]) if (digits := re.findall(r"\d+", sentence)) else 0
    rules: list[tuple[str, Callable[[], Numbers]]] = [
        ("only the even", lambda: [x for x in xs if x & 1 == 0]),
        ("only the odd", lambda: [x for x in xs if x & 1]),
        ("only the numbers greater", lambda: list(filter(lambda x: not x <= k, xs))),
        ("less than or equal", lambda: [x for x in xs if not x > k]),
        ("divisible by", lambda: [x for x in xs if divmod(x, k)[1]]),
        ("Remove all negative", lambda: [x for x in xs if abs(x) == x]),
        ("Multiply every number", lambda: [sum([x] * k) for x in xs]),
        ("Add ", lambda: [x - -k for x in xs]),
        ("Subtract ", lambda: [-(k - x) for x in xs]),
        ("its square", lambda: [abs(x) ** 2 for x in xs]),
        ("absolute value", lambda: [max(x, -x) for x in xs]),
        ("remainder when divided", lambda: [x - k * (x // k) for x in xs]),
        ("Halve every number", lambda: [x >> 1 for x in xs]),
        ("Double every negative", lambda: [x + min(x, 0) for x in xs]),
        ("Change the sign of every odd", lambda: [x * (-1) ** (x & 1) for x in xs]),
        ("greater than", lambda: [x if x < k else k for x in xs] if "Replace" in sentence else _records(xs)),
        ("increasing order", lambda: _sorted(xs)),
        ("decreasing order", lambda: _sorted(xs)[::-1]),
        ("Reverse the order", lambda: list(reversed(xs))),
        ("Keep only the first", lambda: [x for i, x in enumerate(xs) if i < k]),
        ("Drop the first", lambda: [x for i, x in enumerate(xs) if i >= k]),
        ("every second element", lambda: [x for i, x in enumerate(xs) if i % 2 == 0]),
        ("Remove duplicates", lambda: list(dict.fromkeys(xs))),
        ("running totals", lambda: [sum(xs[: i + 1]) for i in range(len(xs))]),
        ("differences of adjacent", lambda: [b - a for a, b in pairwise(xs)]),
        ("itself and the next element", lambda: [a + b for a, b in zip(xs, [*xs[1:], 0], strict=False)]),
        ("by its position", lambda: [x * i for i, x in enumerate(xs, 1)]),
        ("to the end, in the same order", lambda: xs[k:] + xs[:k] if len(xs) > k else xs),
        ("Swap the elements", lambda: [xs[i ^ 1] if i ^ 1 < len(xs) else xs[i] for i in range(len(xs))]),
    ]
    matching = [work for words, work in rules if words in sentence]
    assert matching, sentence
    return matching[0]()


def _records(xs: Numbers) -> Numbers:
    return [x for i, x in enumerate(xs) if all(x > y for y in xs[:i])]


def _sorted(xs: Numbers) -> Numbers:
    left, ordered = list(xs), []
    while left:
        ordered.append(min(left))
        left.remove(ordered[-1])
    return ordered


def ending(sentence: str, xs: Numbers) -> Any:
    k = int(digits[-1]) if (digits := re.findall(r"\d+", sentence)) else 0
    runs = [
        j - i
        for i in range(len(xs))
        for j in range(i + 1, len(xs) + 1)
        if all(xs[m] < xs[m + 1] for m in range(i, j - 1))
    ]
    rules: list[tuple[str, Callable[[], Any]]] = [
        ("alternating signs", lambda: sum(xs[::2]) - sum(xs[1::2])),
        ("sum of the numbers", lambda: sum(xs)),
        ("elements greater than", lambda: len([x for x in xs if x > k])),
        ("difference between", lambda: _sorted(xs)[-1] - _sorted(xs)[0] if xs else 0),
        ("largest number", lambda: _sorted(xs)[-1] if xs else -1),
        ("smallest number", lambda: _sorted(xs)[0] if xs else -1),
        ("distinct elements", lambda: len(dict.fromkeys(xs))),
        ("number of elements", lambda: len(xs)),
        ("last number", lambda: [0, *xs][-1]),
        ("longest run", lambda: max(runs, default=0)),
        ("resulting list", lambda: xs),
        ("separated by commas", lambda: str(xs)[1:-1].replace(" ", "")),
    ]
    matching = [work for words, work in rules if words in sentence]
    assert matching, sentence
    return matching[0]()


def test_programs_on_lists_do_what_their_instructions_say() -> None:
    seen: set[str] = set()
    for seed in range(500):
        program, _ = _chain(Random(seed), 4)
        if program.takes[0][0] != "numbers":
            continue
        *steps, last_sentence = re.findall(r"^\d+\. (.*)\.$", program.task, re.M)
        for (value,), output in zip(program.inputs, run_program(program.source, program.inputs), strict=True):
            for sentence in steps:
                value = step(sentence, value)
            assert ending(last_sentence, value) == output, program.source
        seen |= {re.sub(r"\d+", "#", sentence) for sentence in steps}
    assert len(seen) == 30


@pytest.mark.parametrize("seed", range(40))
def test_reference_programs_do_not_mutate_their_arguments(seed: int) -> None:
    rng = Random(seed)
    program = generate_program(rng, steps=3, classics=True).program
    before = copy.deepcopy(program.inputs)
    run_program(program.source, program.inputs)
    assert program.inputs == before


def check(draw: Callable[[Random], Program], make_reference: Callable[[list[int], str], Callable[..., Any]]) -> None:
    for seed in range(25):
        program = draw(Random(seed))
        reference = make_reference([int(n) for n in re.findall(r"-?\d+", program.task)], program.task)
        for args, output in zip(program.inputs, run_program(program.source, program.inputs), strict=True):
            assert reference(*copy.deepcopy(args)) == output, (program.source, args)


def test_coins() -> None:
    def other(_: list[int], task: str) -> Callable[..., Any]:
        coins = [int(n) for n in task.rpartition(": ")[2].rstrip(".").split(", ")]

        @cache
        def least(amount: int) -> int:
            ways = [least(amount - coin) for coin in coins if coin <= amount]
            return 0 if amount == 0 else min((1 + way for way in ways if way >= 0), default=-1)

        @cache
        def ways(amount: int, i: int) -> int:
            if amount == 0 or i == len(coins):
                return int(amount == 0)
            return sum(ways(amount - used, i + 1) for used in range(0, amount + 1, coins[i]))

        return least if "smallest number" in task else lambda amount: ways(amount, 0)

    check(classics_numbers.coins, other)


def test_the_circle_game() -> None:
    def other(n: list[int], _: str) -> Callable[..., Any]:
        start, step_ = n[0], n[1]

        def survivor(size: int) -> int:
            return 0 if size == 1 else (survivor(size - 1) + step_) % size

        return lambda size: start + survivor(size)

    check(classics_numbers.circle_game, other)


def test_paths() -> None:
    def other(n: list[int], task: str) -> Callable[..., Any]:
        def count(grid: list[list[int]]) -> int:
            moves = [(0, 1), (1, 0), *([(1, 1)] if "diagonally" in task else [])]

            @cache
            def ways(r: int, c: int) -> int:
                if r >= len(grid) or c >= len(grid[0]) or grid[r][c]:
                    return 0
                if (r, c) == (len(grid) - 1, len(grid[0]) - 1):
                    return 1
                return sum(ways(r + dr, c + dc) for dr, dc in moves)

            return ways(0, 0) % n[1]

        return count

    check(classics_simulation.paths, other)


def test_knapsack_and_subsequence() -> None:
    def best(n: list[int], task: str) -> Callable[..., Any]:
        more = n[0] if "more than stated" in task else 0

        def worth(things: list[list[int]], limit: int) -> int:
            sets = (chosen for size in range(len(things) + 1) for chosen in combinations(things, size))
            fitting = (chosen for chosen in sets if sum(weight for weight, _ in chosen) <= limit)
            return max(sum(worth + more * (weight % 2 == 0) for weight, worth in chosen) for chosen in fitting)

        return worth

    check(classics_numbers.knapsack, best)

    def longest(_: list[int], task: str) -> Callable[..., Any]:
        fits: dict[str, Callable[[int, int], bool]] = {
            "strictly increasing": lambda a, b: a < b,
            "strictly decreasing": lambda a, b: a > b,
            "non-decreasing": lambda a, b: a <= b,
            "non-increasing": lambda a, b: a >= b,
        }
        good = next(test for words, test in fits.items() if words in task)

        def length(value: list[int]) -> int:
            @cache
            def on(i: int, before: int | None) -> int:
                if i == len(value):
                    return 0
                skip = on(i + 1, before)
                return max(skip, 1 + on(i + 1, value[i])) if before is None or good(before, value[i]) else skip

            return on(0, None)

        return length

    check(classics_lists.subsequence, longest)


def test_helpers() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd")
    ]
    assert draw_inputs(Random(1), "numbers", 12)[0] == []
    assert compile_function("def solve(x):\n    return x + 1")(2) == 3

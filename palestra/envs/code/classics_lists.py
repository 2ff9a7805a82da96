"""Generate classic problems on a list of numbers: pairs, windows, runs and subsequences.

The generated code reads the list from the variable `value`.
"""

from __future__ import annotations

from random import Random

from palestra.envs.code.boundaries import Hints, sample_value
from palestra.envs.code.programs import COUNT, Args, Program, draw_inputs


def _on_numbers(rng: Random, task: str, *code: str) -> Program:
    inputs = tuple((value,) for value in draw_inputs(rng, "numbers", COUNT))

    def sample(rng: Random, hints: Hints) -> Args:
        return (sample_value(rng, "numbers", hints),)

    takes = (("value", "a list of integers"),)
    return Program(takes=takes, task=task, code=code, inputs=inputs, gives="number", sample=sample)


def pairs(rng: Random) -> Program:
    k = rng.randint(2, 12)
    condition, test = rng.choice(
        (
            (f"the sum of the two is {k}", f"value[i] + value[j] == {k}"),
            (f"the sum of the two is divisible by {k}", f"(value[i] + value[j]) % {k} == 0"),
            (f"they differ by exactly {k}", f"abs(value[i] - value[j]) == {k}"),
            (f"the first is at least {k} greater than the second", f"value[i] - value[j] >= {k}"),
            (f"their product is less than {k}", f"value[i] * value[j] < {k}"),
        )
    )
    return _on_numbers(
        rng,
        f"Return the number of pairs of elements at two different positions, in list order, for which {condition}.",
        "count = 0",
        "for i in range(len(value)):",
        "    for j in range(i + 1, len(value)):",
        f"        if {test}:",
        "            count += 1",
        "return count",
    )


def windows(rng: Random) -> Program:
    width, bound = rng.randint(2, 4), rng.randint(3, 30)
    if rng.random() < 0.5:
        name, sign = rng.choice((("largest", ">"), ("smallest", "<")))
        return _on_numbers(
            rng,
            f"Return the {name} sum of {width} consecutive elements, or 0 if there are fewer than {width} elements.",
            f"if len(value) < {width}:",
            "    return 0",
            f"best = sum(value[:{width}])",
            f"for i in range(1, len(value) - {width} + 1):",
            f"    total = sum(value[i:i + {width}])",
            f"    if total {sign} best:",
            "        best = total",
            "return best",
        )
    return _on_numbers(
        rng,
        f"Return the number of blocks of {width} consecutive elements (they may overlap) with a sum greater than "
        f"{bound}.",
        "count = 0",
        f"for i in range(len(value) - {width} + 1):",
        f"    if sum(value[i:i + {width}]) > {bound}:",
        "        count += 1",
        "return count",
    )


def longest_run(rng: Random) -> Program:
    k = rng.randint(2, 9)
    condition, test = rng.choice(
        (
            ("each is greater than the previous one", "value[i] > value[i - 1]"),
            ("each is less than or equal to the previous one", "value[i] <= value[i - 1]"),
            (f"adjacent elements differ by at most {k}", f"abs(value[i] - value[i - 1]) <= {k}"),
            ("even and odd numbers alternate", "(value[i] + value[i - 1]) % 2 == 1"),
            (f"the sum of any two adjacent elements is greater than {k}", f"value[i] + value[i - 1] > {k}"),
        )
    )
    return _on_numbers(
        rng,
        f"Return the length of the longest run of consecutive elements in which {condition}. A single element is a run "
        "of length 1; for an empty list, return 0.",
        "best = run = 0",
        "for i in range(len(value)):",
        f"    if i > 0 and {test}:",
        "        run += 1",
        "    else:",
        "        run = 1",
        "    if run > best:",
        "        best = run",
        "return best",
    )


def subsequence(rng: Random) -> Program:
    condition, sign = rng.choice(
        (
            ("strictly increasing", "<"),
            ("strictly decreasing", ">"),
            ("non-decreasing", "<="),
            ("non-increasing", ">="),
        )
    )
    return _on_numbers(
        rng,
        f"Return the length of the longest {condition} subsequence. A subsequence consists of elements in their "
        "original order, which need not be adjacent. For an empty list, return 0.",
        "best = [1] * len(value)",
        "for i in range(len(value)):",
        "    for j in range(i):",
        f"        if value[j] {sign} value[i] and best[j] + 1 > best[i]:",
        "            best[i] = best[j] + 1",
        "return max(best) if best else 0",
    )


def best_block(rng: Random) -> Program:
    k = rng.randint(1, 9)
    return _on_numbers(
        rng,
        f"Subtract {k} from every element. Then return the largest sum of a block of consecutive elements. The block "
        "may be empty, and its sum is then 0.",
        "best = current = 0",
        "for x in value:",
        f"    current = max(0, current + x - {k})",
        "    best = max(best, current)",
        "return best",
    )


def majority(rng: Random) -> Program:
    k = rng.randint(2, 3)
    largest = rng.random() < 0.5
    which = "largest" if largest else "smallest"
    return _on_numbers(
        rng,
        f"Return the {which} number that occurs at least {k} times, or -100 if there is none.",
        "best = None",
        "for x in value:",
        f"    if value.count(x) >= {k} and (best is None or x {'>' if largest else '<'} best):",
        "        best = x",
        "return -100 if best is None else best",
    )

"""Algorithmic problems on numbers: digits, divisors, recurrences and games."""

from __future__ import annotations

from random import Random

from palestra.envs.code.algorithm_parts import Algorithm, integers
from palestra.envs.code.programs import Args


def digit_count(rng: Random) -> Algorithm:
    k = rng.randint(3, 7)
    digit = rng.randint(1, 9)
    goal = rng.choice(("divisible", "without", "rising", "different", "at most"))
    # Description, initial state, condition for the next digit `d`, next state, and condition for the final state.
    text, start, allowed, after, final = {
        "divisible": (f"whose sum of digits is divisible by {k}", "0", "True", f"(state + d) % {k}", "state == 0"),
        "without": (f"whose decimal digits do not include {digit}", "0", f"d != {digit}", "0", "True"),
        "rising": ("whose decimal digits never decrease from left to right", "0", "d >= state", "d", "True"),
        "different": ("in which no two adjacent decimal digits are equal", "-1", "d != state", "d", "True"),
        "at most": (f"in which the digit {digit} occurs at most twice", "0", f"state < 2 or d != {digit}",
                    f"state + (1 if d == {digit} else 0)", "True"),
    }[goal]  # fmt: skip

    def sample(rng: Random) -> Args:
        return (rng.randint(0, 10 ** rng.randint(1, 3) * 2),)

    return Algorithm(
        kind="digit_count",
        takes=(("n", "a non-negative integer with up to 15 digits"),),
        intro="",
        result=f"the number of integers from 1 to n, both included, {text}",
        code=f"""
limit = str(n)
known = {{}}

def count(at, state, tight, started):
    if at == len(limit):
        return 1 if started and {final} else 0
    key = at, state, tight, started
    if key not in known:
        total = 0
        for d in range(int(limit[at]) + 1 if tight else 10):
            still = tight and d == int(limit[at])
            if not started and d == 0:
                total += count(at + 1, state, still, False)
            elif {allowed}:
                total += count(at + 1, {after}, still, True)
        known[key] = total
    return known[key]

return count(0, {start}, True, False)
""",
        gives="natural",
        edges=((0,), (1,), (9,), (10,), (11,), (99,), (100,), (110,)),
        small=sample,
        large=lambda rng: (rng.randint(10**12, 10**15),),
        choices={"goal": goal, "k": k, "digit": digit},
    )


def multiples(rng: Random) -> Algorithm:
    goal = rng.choice(("any", "none", "one", "odd"))
    result = {
        "any": "divisible by at least one of the numbers in `divisors`",
        "none": "divisible by none of the numbers in `divisors`",
        "one": "divisible by exactly one of the numbers in `divisors`",
        "odd": "divisible by an odd number of the elements of `divisors`",
    }[goal]
    term = {
        "any": "-(-1) ** size * (n // step)",
        "none": "(-1) ** size * (n // step)",
        "one": "-(-1) ** size * size * (n // step)",
        "odd": "-(-2) ** size // 2 * (n // step)",
    }[goal]
    first = "0" if goal == "none" else "1"

    def sample(rng: Random, highest: int) -> Args:
        return rng.randint(1, highest), sorted(rng.sample(range(2, 16), rng.randint(1, 4)))

    return Algorithm(
        kind="multiples",
        takes=(
            ("n", "a positive integer up to 10 ** 15"),
            ("divisors", "a list of up to 6 different integers greater than 1"),
        ),
        intro="",
        result=f"the number of integers from 1 to n, both included, that are {result}",
        code=f"""
import math
from itertools import combinations
total = 0
for size in range({first}, len(divisors) + 1):
    for chosen in combinations(divisors, size):
        step = math.lcm(*chosen)
        total += {term}
return total
""",
        gives="natural",
        edges=((1, [2]), (2, [2]), (12, [4, 6]), (30, [2, 3, 5]), (24, [2, 4, 8]), (5, [7])),
        small=lambda rng: sample(rng, 300),
        large=lambda rng: (rng.randint(10**12, 10**15), rng.sample(range(2, 40), 6)),
        choices={"goal": goal},
    )


def smooth_numbers(rng: Random) -> Algorithm:
    goal = rng.choice(("kth", "sum", "gap"))
    start = rng.choice((1, 1, 2, 3))
    numbers = (
        "products of primes from `factors`"
        if start == 1
        else f"numbers that are {start} times a product of primes from `factors`"
    )
    result = {
        "kth": "the number at position k of this list (the first one is at position 1)",
        "sum": "the sum of the first k numbers of this list",
        "gap": "the largest difference between two consecutive numbers among the first k numbers of this list (0 if "
        "k is 1)",
    }[goal]
    last = {
        "kth": "return listed[k - 1]",
        "sum": "return sum(listed)",
        "gap": "return max((b - a for a, b in zip(listed, listed[1:])), default=0)",
    }[goal]

    def sample(rng: Random, highest: int) -> Args:
        return sorted(rng.sample((2, 3, 5, 7, 11), rng.randint(1, 3))), rng.randint(1, highest)

    return Algorithm(
        kind="smooth_numbers",
        takes=(("factors", "a non-empty list of different primes"), ("k", "a positive integer")),
        intro=f"List all {numbers} in increasing order. Each prime may be used any number of times, and {start} "
        "itself is included.",
        result=result,
        code=f"""
import heapq
heap, seen, listed = [{start}], {{{start}}}, []
while len(listed) < k:
    x = heapq.heappop(heap)
    listed.append(x)
    for p in factors:
        if x * p not in seen:
            seen.add(x * p)
            heapq.heappush(heap, x * p)
{last}
""",
        gives="natural",
        edges=(([2], 1), ([2], 5), ([2, 3], 2), ([2, 3, 5], 10), ([7, 2], 6)),
        small=lambda rng: sample(rng, 9),
        large=lambda rng: (rng.sample((2, 3, 5, 7, 11, 13), 4), rng.randint(250, 400)),
        choices={"goal": goal, "start": start},
    )


def stones(rng: Random) -> Algorithm:
    moves = sorted(rng.sample(range(1, 8), rng.randint(2, 4)))
    listed = f"{', '.join(map(str, moves[:-1]))} or {moves[-1]}"
    goal = rng.choice(("openings", "single", "misere"))
    intro = f"Two players take turns. In a turn, a player removes {listed} stones from a pile. "
    intro += "A player who cannot move " + ("wins." if goal == "misere" else "loses.")
    if goal == "openings":
        result = (
            "the number of first moves with which the first player can force a win, where moves that differ in the "
        )
        result += "pile or in the number of stones count separately"
        code = f"""
nimber = []
for size in range(max(piles, default=0) + 1):
    reached = {{nimber[size - m] for m in {moves} if m <= size}}
    value = 0
    while value in reached:
        value += 1
    nimber.append(value)
total = 0
for size in piles:
    total ^= nimber[size]
return sum(1 for size in piles for m in {moves} if m <= size and total ^ nimber[size] ^ nimber[size - m] == 0)
"""
        takes = (("piles", "a list of non-negative integers, the numbers of stones"),)
        edges: tuple[Args, ...] = (([],), ([0],), ([1],), ([3, 3],), ([5, 2],), (list(moves),))
    else:
        takes = (("n", "a non-negative integer, the number of stones in the only pile"),)
        result = "the number of sizes of a single pile, from 0 to n, for which the first player can force a win"
        code = f"""
wins = []
for size in range(n + 1):
    options = [wins[size - m] for m in {moves} if m <= size]
    wins.append({"not options or not all(options)" if goal == "misere" else "not all(options)"})
return sum(wins)
"""
        edges = ((0,), (1,), (2,), (moves[-1],), (moves[-1] + 1,))

    def sample(rng: Random) -> Args:
        return (integers(rng, rng.randint(1, 3), 0, 6),) if goal == "openings" else (rng.randint(0, 20),)

    def large(rng: Random) -> Args:
        return (integers(rng, 40, 0, 60),) if goal == "openings" else (rng.randint(300, 600),)

    return Algorithm(
        kind="stones",
        takes=takes,
        intro=intro,
        result=result,
        code=code,
        gives="natural",
        edges=edges,
        small=sample,
        large=large,
        choices={"moves": moves, "goal": goal},
    )


def dice(rng: Random) -> Algorithm:
    sides = rng.randint(3, 8)
    rule = rng.choice(("any", "different", "rising"))
    goal = rng.choice(("exactly", "at least"))
    condition = {
        "any": "",
        "different": " and in which no two consecutive throws show the same number",
        "rising": " and in which no throw shows a smaller number than the one before",
    }[rule]
    test = {"any": "True", "different": "d != last", "rising": "d >= last"}[rule]
    last = "s == total" if goal == "exactly" else "s >= total"
    return Algorithm(
        kind="dice",
        takes=(("throws", "a positive integer"), ("total", "a non-negative integer")),
        intro=f"A die with the numbers 1 to {sides} is thrown `throws` times.",
        result=f"the number of different sequences of throws whose sum is {goal} `total`{condition}",
        code=f"""
ways = {{(0, 0): 1}}
for _ in range(throws):
    after = {{}}
    for (s, last), count in ways.items():
        for d in range(1, {sides} + 1):
            if {test}:
                key = s + d, {"0" if rule == "any" else "d"}
                after[key] = after.get(key, 0) + count
    ways = after
return sum(count for (s, last), count in ways.items() if {last})
""",
        gives="natural",
        edges=((1, 0), (1, 1), (1, sides), (1, sides + 1), (2, 2), (2, 2 * sides), (3, sides)),
        small=lambda rng: (throws := rng.randint(1, 4), rng.randint(throws - 1, throws * sides + 1)),
        large=lambda rng: (throws := rng.randint(14, 15), throws * (sides + 1) // 2 + rng.randint(-5, 5)),
        choices={"sides": sides, "rule": rule, "goal": goal},
    )


def power_cycle(rng: Random) -> Algorithm:
    a, b = rng.randint(2, 9), rng.randint(1, 9)
    goal = rng.choice(("value", "index", "tail"))
    result = {
        "value": "x(k)",
        "index": "the smallest index i for which x(i) = x(k)",
        "tail": "the number of different values among x(0), x(1), ..., x(k)",
    }[goal]
    last = {
        "value": "return order[k] if k < len(order) else order[start + (k - start) % period]",
        "index": "return seen[order[k] if k < len(order) else order[start + (k - start) % period]]",
        "tail": "return min(k + 1, len(order))",
    }[goal]
    return Algorithm(
        kind="power_cycle",
        takes=(
            ("m", "an integer from 2 to 500"),
            ("seed", "an integer from 0 to m - 1"),
            ("k", "an integer from 0 to 10 ** 18"),
        ),
        intro="A sequence starts with x(0) = seed. Each later element x(i + 1) is the remainder when x(i) * x(i) + "
        f"{a} * x(i) + {b} is divided by m.",
        result=result,
        code=f"""
seen, order, x = {{}}, [], seed
while x not in seen:
    seen[x] = len(order)
    order.append(x)
    x = (x * x + {a} * x + {b}) % m
start = seen[x]
period = len(order) - start
{last}
""",
        gives="natural",
        edges=((2, 0, 0), (2, 1, 1), (7, 3, 2), (10, 9, 10), (97, 5, 3)),
        small=lambda rng: (m := rng.randint(2, 60), rng.randrange(m), rng.randint(0, 40)),
        large=lambda rng: (m := rng.randint(200, 500), rng.randrange(m), rng.randint(10**15, 10**18)),
        choices={"a": a, "b": b, "goal": goal},
    )

"""Algorithmic problems on blocks of consecutive list elements and on pairs of list elements."""

from __future__ import annotations

from random import Random

from palestra.envs.code.algorithm_parts import Algorithm, list_sampler

_VALUES = (("values", "a list of integers"),)
_POSITIVE = (("values", "a list of positive integers"),)


def block(rng: Random) -> Algorithm:
    goal, sign = rng.choice((("largest", "max"), ("smallest", "min")))
    length = rng.randint(2, 4)
    rule = rng.choice(("at least", "at most", "a multiple of"))
    circular = rng.random() < 0.4
    steps = {"at least": "size >= {k}", "at most": "size <= {k}", "a multiple of": "size % {k} == 0"}[rule]
    wrap = " The list is circular: the first element follows the last one, but no element is used twice."
    return Algorithm(
        kind="block",
        takes=_VALUES,
        intro=f"A block consists of one or more consecutive elements of `values`.{wrap if circular else ''}",
        result=f"the {goal} sum of a block whose length is {rule} {length}, or 0 if there is no such block",
        code=f"""
n = len(values)
prefix = [0]
for x in values{" + values" if circular else ""}:
    prefix.append(prefix[-1] + x)
sums = []
for start in range(n):
    for size in range(1, {"n" if circular else "n - start"} + 1):
        if {steps.replace("{k}", str(length))}:
            sums.append(prefix[start + size] - prefix[start])
return {sign}(sums, default=0)
""",
        gives="number",
        edges=(([],), ([5],), ([-5, -2],), ([3, -1, 4, -1, 5],), ([-2, -3, -1, -4],)),
        small=list_sampler(1, 9, -9, 9),
        large=list_sampler(70, 90, -99, 99),
        choices={"goal": goal, "rule": rule, "k": length, "circular": circular},
    )


def split(rng: Random) -> Algorithm:
    goal, inner, outer = rng.choice((("smallest", "min", "max"), ("largest", "max", "min")))
    extreme = "largest" if outer == "max" else "smallest"
    measure, weight = rng.choice((("sum", "sum(values[j:i])"), ("range", "max(values[j:i]) - min(values[j:i])")))
    means = "sum of its elements" if measure == "sum" else "difference between its largest and its smallest element"
    return Algorithm(
        kind="split",
        takes=(*_POSITIVE, ("parts", "a positive integer")),
        intro="Split `values` into exactly `parts` non-empty blocks of consecutive elements. The weight of a block "
        f"is the {means}.",
        result=f"the {goal} possible value of the {extreme} weight of a block, or -1 if there are fewer elements than "
        "`parts`",
        code=f"""
n = len(values)
best = [[None] * (n + 1) for _ in range(parts + 1)]
for i in range(1, n + 1):
    for j in range(i):
        weight = {weight}
        for p in range(1, parts + 1):
            if p == 1 and j == 0:
                found = weight
            elif p > 1 and best[p - 1][j] is not None:
                found = {outer}(best[p - 1][j], weight)
            else:
                continue
            best[p][i] = found if best[p][i] is None else {inner}(best[p][i], found)
return -1 if best[parts][n] is None else best[parts][n]
""",
        gives="number",
        edges=(([], 1), ([4], 1), ([4], 2), ([1, 2, 3], 3), ([7, 7, 7, 7], 2)),
        small=list_sampler(1, 8, 1, 20, (1, 4)),
        large=list_sampler(28, 32, 1, 99, (9, 11)),
        choices={"goal": goal, "measure": measure},
    )


def blocks_counted(rng: Random) -> Algorithm:
    k = rng.randint(2, 6)
    goal = rng.choice(("sum", "divisible", "distinct", "odd", "longest"))
    result = {
        "sum": f"the number of blocks with a sum of exactly {k}",
        "divisible": f"the number of blocks with a sum that is divisible by {k}",
        "distinct": f"the number of blocks with at most {k} different numbers",
        "odd": f"the number of blocks with exactly {k} odd numbers",
        "longest": f"the length of the longest block with at most {k} different numbers (0 for an empty list)",
    }[goal]
    if goal in ("distinct", "longest"):
        add = "total += i - start + 1" if goal == "distinct" else "total = max(total, i - start + 1)"
        code = f"""
counts = {{}}
start = total = 0
for i, x in enumerate(values):
    counts[x] = counts.get(x, 0) + 1
    while len(counts) > {k}:
        counts[values[start]] -= 1
        if counts[values[start]] == 0:
            del counts[values[start]]
        start += 1
    {add}
return total
"""
    else:
        step = {"sum": "prefix += x", "divisible": f"prefix = (prefix + x) % {k}", "odd": "prefix += x % 2"}[goal]
        wanted = {"sum": f"prefix - {k}", "divisible": "prefix", "odd": f"prefix - {k}"}[goal]
        code = f"""
seen = {{0: 1}}
prefix = total = 0
for x in values:
    {step}
    total += seen.get({wanted}, 0)
    seen[prefix] = seen.get(prefix, 0) + 1
return total
"""
    return Algorithm(
        kind="blocks_counted",
        takes=_VALUES,
        intro="A block consists of one or more consecutive elements of `values`; equal blocks at different positions "
        "count separately.",
        result=result,
        code=code,
        gives="natural",
        edges=(([],), ([k],), ([0],), ([1] * 8,), ([k, -k, k],)),
        small=list_sampler(1, 12, -4, 7),
        large=list_sampler(300, 400, -9, 15),
        choices={"goal": goal, "k": k},
    )


def inversions(rng: Random) -> Algorithm:
    d = rng.randint(1, 5)
    direction = rng.choice(("greater", "less"))
    goal = rng.choice(("total", "each", "most"))
    find = (
        f"i - bisect.bisect_right(ordered, x + {d})"
        if direction == "greater"
        else f"bisect.bisect_left(ordered, x - {d})"
    )
    last = {"total": "sum(counts)", "each": "counts", "most": "max(counts, default=0)"}[goal]
    result = {
        "total": "the sum of these counts",
        "each": "these counts, in the order of the elements",
        "most": "the largest of these counts (0 for an empty list)",
    }[goal]
    return Algorithm(
        kind="inversions",
        takes=_VALUES,
        intro=f"For each element of `values`, count the earlier elements that are {direction} than it by more than "
        f"{d}.",
        result=result,
        code=f"""
import bisect
ordered, counts = [], []
for i, x in enumerate(values):
    counts.append({find})
    bisect.insort(ordered, x)
return {last}
""",
        gives="numbers" if goal == "each" else "natural",
        edges=(([],), ([5],), ([5, 1, 9],), ([3, 3, 3],), ([9, 7, 5, 3, 1],), ([0, d, 2 * d, d + 1, 0],)),
        small=list_sampler(2, 10, -9, 9),
        large=list_sampler(300, 400, -500, 500),
        choices={"d": d, "direction": direction, "goal": goal},
    )

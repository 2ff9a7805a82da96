"""Algorithmic problems on sequences: subsequences, selections, blocks, trades and counting."""

from __future__ import annotations

from random import Random

from palestra.envs.code.algorithm_parts import Algorithm, integers, list_sampler
from palestra.envs.code.programs import Args

_VALUES = (("values", "a list of integers"),)
_POSITIVE = (("values", "a list of positive integers"),)


def subsequence(rng: Random) -> Algorithm:
    name, sign = rng.choice(
        (("strictly increasing", "<"), ("strictly decreasing", ">"), ("non-decreasing", "<="), ("non-increasing", ">="))
    )
    d = rng.randint(2, 6)
    limit = rng.choice(("none", "near", "far"))
    condition, test = {
        "none": ("", ""),
        "near": (f" in which neighboring elements differ by at most {d}", f" and abs(values[j] - x) <= {d}"),
        "far": (f" in which neighboring elements differ by at least {d}", f" and abs(values[j] - x) >= {d}"),
    }[limit]
    goal = rng.choice(("length", "sum"))
    what = f"the length of the longest {name}" if goal == "length" else f"the largest sum of a non-empty {name}"
    return Algorithm(
        kind="subsequence",
        takes=_VALUES,
        intro="A subsequence consists of elements in their original order, which need not be adjacent.",
        result=f"{what} subsequence of `values`{condition}, or 0 if the list is empty",
        code=f"""
best = []
for i, x in enumerate(values):
    before = 0
    for j in range(i):
        if values[j] {sign} x{test}:
            before = max(before, best[j])
    best.append(before + {1 if goal == "length" else "x"})
return max(best, default=0)
""",
        gives="natural" if goal == "length" else "number",
        edges=(([],), ([5],), ([-3, -1],), ([4, 4, 4],), ([9, 7, 4, 2],), ([1, 3, 6, 10],)),
        small=list_sampler(1, 9, -8, 12),
        large=list_sampler(70, 90, -50, 99),
        choices={"sign": sign, "limit": limit, "d": d, "goal": goal},
    )


def target_sum(rng: Random) -> Algorithm:
    goal = rng.choice(("count", "largest", "fewest", "most"))
    repeat = goal != "count" and rng.random() < 0.5
    order = "range(x, target + 1)" if repeat else "range(target, x - 1, -1)"
    use = "any number of times" if repeat else "at most once"
    result = {
        "count": "the number of ways to choose elements with a sum of exactly `target`, where ways are different if "
        "they use different positions",
        "largest": "the largest possible sum of the chosen elements that is at most `target`",
        "fewest": "the smallest number of chosen elements whose sum is exactly `target`, or -1 if there is no such "
        "choice",
        "most": "the largest number of chosen elements whose sum is exactly `target`, or -1 if there is no such choice",
    }[goal]
    if goal == "count":
        start, update, last = "[1] + [0] * target", "best[t] += best[t - x]", "return best[target]"
    elif goal == "largest":
        start, update = "[True] + [False] * target", "best[t] = best[t] or best[t - x]"
        last = "return max(t for t in range(target + 1) if best[t])"
    else:
        sign = "<" if goal == "fewest" else ">"
        start = "[0] + [-1] * target"
        update = f"if best[t - x] >= 0 and (best[t] < 0 or best[t - x] + 1 {sign} best[t]):"
        update += "\n            best[t] = best[t - x] + 1"
        last = "return best[target]"
    return Algorithm(
        kind="target_sum",
        takes=(*_POSITIVE, ("target", "a non-negative integer")),
        intro=f"Choose elements of `values`. Each element may be used {use}. Choosing nothing has the sum 0.",
        result=result,
        code=f"best = {start}\nfor x in values:\n    for t in {order}:\n        {update}\n{last}",
        gives="natural" if goal in ("count", "largest") else "number",
        edges=(([], 0), ([], 5), ([5], 5), ([5], 4), ([2, 2, 2], 4), ([3, 4], 1)),
        small=list_sampler(1, 6, 1, 9, (0, 20)),
        large=list_sampler(45, 50, 3, 30, (120, 150)),
        choices={"goal": goal, "repeat": repeat},
    )


def budget(rng: Random) -> Algorithm:
    k = rng.randint(2, 4)
    rule, bonus = rng.choice(("none", "at most", "exactly")), rng.random() < 0.5
    extra = rng.randint(2, 6)
    limit = {"none": "", "at most": f" Buy at most {k} items.", "exactly": f" Buy exactly {k} items."}[rule]
    gift = (
        f" The most expensive item that is bought is worth {extra} more; if nothing is bought, there is no such bonus."
    )

    def items(rng: Random, count: int, highest: int) -> list[list[int]]:
        return [[rng.randint(1, highest), rng.randint(1, 20)] for _ in range(count)]

    none = {"exactly": ", or -1 if that is not possible"}.get(rule, "")
    last = {"none": "max(max(row) for row in best)", "at most": f"max(max(row) for row in best[:{k} + 1])"}.get(
        rule, f"max(best[{k}])"
    )
    adjust = f"best[1:] = [[x + {extra} if x >= 0 else x for x in row] for row in best[1:]]\n" if bonus else ""
    size = "len(items)" if rule == "none" else f"{k}"
    return Algorithm(
        kind="budget",
        takes=(("items", "a list of pairs [price, worth] of positive integers"), ("money", "a non-negative integer")),
        intro=f"Buy some of the items, each at most once, for at most `money` in total.{limit}{gift if bonus else ''}",
        result=f"the largest possible total worth of the items that are bought{none}",
        code=f"""
best = [[-1] * (money + 1) for _ in range({size} + 1)]
best[0] = [0] * (money + 1)
for price, worth in items:
    for count in range({size}, 0, -1):
        for spent in range(money, price - 1, -1):
            if best[count - 1][spent - price] >= 0:
                best[count][spent] = max(best[count][spent], best[count - 1][spent - price] + worth)
{adjust}return {last}
""",
        gives="number" if rule == "exactly" else "natural",
        edges=(([], 3), ([[2, 5]], 1), ([[2, 5]], 2), ([[1, 1], [1, 2], [1, 3]], 2)),
        small=lambda rng: (items(rng, rng.randint(1, 6), 9), rng.randint(0, 20)),
        large=lambda rng: (items(rng, 22, 9), rng.randint(14, 20)),
        choices={"rule": rule, "k": k, "bonus": extra if bonus else 0},
    )


def apart(rng: Random) -> Algorithm:
    gap = rng.randint(1, 4)
    goal = rng.choice(("sum", "ways", "even"))
    intro = (
        f"Choose elements of `values` so that the positions of any two chosen elements differ by more than {gap}. You "
    )
    intro += "may also choose nothing."
    at = f"max(0, i - {gap})"
    if goal == "sum":
        result = "the largest possible sum of the chosen elements (0 if nothing is chosen)"
        code = f"""
best = [0]
for i, x in enumerate(values):
    best.append(max(best[i], best[{at}] + x))
return best[-1]
"""
    elif goal == "ways":
        result = "the number of different sets of positions that can be chosen, including the empty set"
        code = f"ways = [1]\nfor i in range(len(values)):\n    ways.append(ways[i] + ways[{at}])\nreturn ways[-1]"
    else:
        result = "the largest possible sum of the chosen elements (0 if nothing is chosen) if their number must be even"
        code = f"""
even, odd = [0], [None]
for i, x in enumerate(values):
    before = odd[{at}]
    even.append(even[i] if before is None else max(even[i], before + x))
    taken = even[{at}] + x
    odd.append(taken if odd[i] is None else max(odd[i], taken))
return even[-1]
"""
    return Algorithm(
        kind="apart",
        takes=_VALUES,
        intro=intro,
        result=result,
        code=code,
        gives="natural",
        edges=(([],), ([5],), ([-5],), ([3, 4],), ([6, 1, 1, 1, 1, 7],)),
        small=list_sampler(1, 9, -5, 20),
        large=list_sampler(60, 80, -9, 99),
        choices={"gap": gap, "goal": goal},
    )


def trades(rng: Random) -> Algorithm:
    rule = rng.choice(("limit", "fee", "rest"))
    k = rng.randint(2, 4)
    text = {
        "limit": f"You may buy and sell at most {k} times.",
        "fee": f"Each sale costs a fee of {k}.",
        "rest": f"After selling on one day, you may buy again at the earliest {k} days later.",
    }[rule]
    code = {
        "limit": f"""
free = [0] * ({k} + 1)
hold = [None] * ({k} + 1)
for price in values:
    for t in range({k}, 0, -1):
        if hold[t] is not None:
            free[t] = max(free[t], hold[t] + price)
        if hold[t] is None or free[t - 1] - price > hold[t]:
            hold[t] = free[t - 1] - price
return max(free)
""",
        "fee": f"""
free, hold = 0, None
for price in values:
    if hold is not None:
        free = max(free, hold + price - {k})
    if hold is None or free - price > hold:
        hold = free - price
return free
""",
        "rest": f"""
free, hold = [0], None
for i, price in enumerate(values):
    sold = free[i]
    if hold is not None:
        sold = max(sold, hold + price)
    ready = free[max(0, i + 1 - {k})]
    if hold is None or ready - price > hold:
        hold = ready - price
    free.append(sold)
return free[-1]
""",
    }[rule]
    return Algorithm(
        kind="trades",
        takes=(("values", "a list of positive integers, the price of a share on each day"),),
        intro="On each day, you may buy one share, sell one share or do nothing. You never own more than one share. "
        f"{text}",
        result="the largest possible profit, which is 0 if you do nothing",
        code=code,
        gives="natural",
        edges=(([],), ([5],), ([5, 1],), ([1, 5],), ([1, 9, 1, 9, 1, 9],)),
        small=list_sampler(1, 8, 1, 20),
        large=list_sampler(60, 90, 1, 99),
        choices={"rule": rule, "k": k},
    )


def jumps(rng: Random) -> Algorithm:
    goal = rng.choice(("fewest", "cost", "ways"))
    reach = rng.randint(2, 4)
    if goal == "cost":
        takes = _POSITIVE
        intro = "You start at the first element of `values` and move to the right until you reach the last one. Each "
        intro += f"jump leads 1 to {reach} positions further. You pay the value of every element that you land on; the "
        intro += "first one is free."
        result = "the smallest possible total payment, or 0 for an empty list"
        code = f"""
best = [0]
for i in range(1, len(values)):
    best.append(values[i] + min(best[max(0, i - {reach}):i]))
return best[-1]
"""
    else:
        takes = (("values", "a list of non-negative integers"),)
        intro = "You start at the first element of `values`. From an element with the value v, you may jump 1 to v "
        intro += (
            "positions to the right, but not beyond the last element. If the list has at most one element, no jump is "
        )
        intro += "needed" + (", which counts as one sequence." if goal == "ways" else ".")
        what = "smallest number of jumps" if goal == "fewest" else "number of different sequences of jumps"
        none = "-1 if that is not possible" if goal == "fewest" else "0 if there is none"
        result = f"the {what} with which you reach the last element, or {none}"
        if goal == "fewest":
            code = """
best = [0] + [-1] * (len(values) - 1)
for i in range(len(values)):
    for j in range(i):
        if best[j] >= 0 and j + values[j] >= i and (best[i] < 0 or best[j] + 1 < best[i]):
            best[i] = best[j] + 1
return best[-1]
"""
        else:
            code = """
ways = [1] + [0] * (len(values) - 1)
for i in range(len(values)):
    for j in range(i):
        if j + values[j] >= i:
            ways[i] += ways[j]
return ways[-1]
"""
    low = 1 if goal == "cost" else 0
    return Algorithm(
        kind="jumps",
        takes=takes,
        intro=intro,
        result=result,
        code=code,
        gives="number" if goal == "fewest" else "natural",
        edges=(([],), ([3],), ([1, 1],), ([2, 1, 1],), ([3, 1, 2, 1],)),
        small=list_sampler(1, 9, low, 4),
        large=lambda rng: (integers(rng, rng.randint(60, 80), max(low, 1), 6),),
        choices={"goal": goal, "reach": reach},
    )


def ends_game(rng: Random) -> Algorithm:
    ends = rng.random() < 0.6
    k = rng.randint(1 if ends else 2, 3)
    goal = rng.choice(("difference", "first"))
    up_to = "one element" if k == 1 else f"1 to {k} elements"
    side = "from either end of the list" if ends else "from the front of the list"
    side += " (all from the same end)" if ends and k > 1 else ""
    result = (
        "the sum of the elements that the first player gets minus the sum of those that the second player gets"
        if goal == "difference"
        else "the sum of the elements that the first player gets"
    )

    def sample(rng: Random) -> Args:
        return (integers(rng, rng.randint(1, 8), -5, 15),)

    right = "" if not ends else "\n            options.append(sum(values[j - t:j]) - best[i, j - t])"
    return Algorithm(
        kind="ends_game",
        takes=_VALUES,
        intro=f"Two players take turns. The player whose turn it is removes {up_to} {side} and keeps what was "
        "removed. The game ends when the list is empty. Both players choose their moves so that the difference "
        "between their own sum and the other player's sum is as large as possible.",
        result=result,
        code=f"""
n = len(values)
best = {{(i, i): 0 for i in range(n + 1)}}
for size in range(1, n + 1):
    for i in range(n - size + 1):
        j = i + size
        options = []
        for t in range(1, min({k}, size) + 1):
            options.append(sum(values[i:i + t]) - best[i + t, j]){right}
        best[i, j] = max(options)
return {"best[0, n]" if goal == "difference" else "(sum(values) + best[0, n]) // 2"}
""",
        gives="number",
        edges=(([],), ([5],), ([-5],), ([1, 9, 1],), ([2, 2, 2, 2],)),
        small=sample,
        large=lambda rng: (integers(rng, 32, -9, 30),),
        choices={"k": k, "goal": goal, "ends": ends},
    )

"""Slow solutions to the algorithmic problems, which follow the problem descriptions literally.

Each function takes a problem's choices (its variant and constants), followed by the solution's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache as memoize
from itertools import combinations, pairwise, product
from math import inf
from typing import Any

Choices = Mapping[str, Any]
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}


def subsets(count: int) -> Iterator[tuple[int, ...]]:
    for size in range(count + 1):
        yield from combinations(range(count), size)


def pieces(text: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield all ways to split a sequence into non-empty consecutive pieces."""
    if not text:
        yield []
    for i in range(1, len(text) + 1):
        for rest in pieces(text[i:]):
            yield [text[:i], *rest]


def blocks(values: list[int]) -> list[list[int]]:
    return [values[i:j] for i in range(len(values)) for j in range(i + 1, len(values) + 1)]


def subsequence(c: Choices, values: list[int]) -> Any:
    found = []
    for chosen in subsets(len(values)):
        part = [values[i] for i in chosen]
        pairs = list(pairwise(part))
        near = all(
            {"none": True, "near": abs(a - b) <= c["d"], "far": abs(a - b) >= c["d"]}[c["limit"]] for a, b in pairs
        )
        if part and near and all(COMPARE[c["sign"]](a, b) for a, b in pairs):
            found.append(len(part) if c["goal"] == "length" else sum(part))
    return max(found, default=0)


def target_sum(c: Choices, values: list[int], target: int) -> Any:
    most = [target // x if c["repeat"] else 1 for x in values]
    sums = [
        (sum(n * x for n, x in zip(used, values, strict=True)), sum(used))
        for used in product(*(range(n + 1) for n in most))
    ]
    exact = [count for total, count in sums if total == target]
    if c["goal"] == "count":
        return len(exact)
    if c["goal"] == "largest":
        return max(total for total, _ in sums if total <= target)
    return (min if c["goal"] == "fewest" else max)(exact, default=-1)


def budget(c: Choices, items: list[list[int]], money: int) -> Any:
    found = []
    for chosen in subsets(len(items)):
        count = len(chosen)
        allowed = {"none": True, "at most": count <= c["k"], "exactly": count == c["k"]}[c["rule"]]
        if allowed and sum(items[i][0] for i in chosen) <= money:
            found.append(sum(items[i][1] for i in chosen) + (c["bonus"] if chosen else 0))
    return max(found, default=-1)


def block(c: Choices, values: list[int]) -> Any:
    n = len(values)
    double = values + values if c["circular"] else values
    sums = [
        sum(double[i : i + size])
        for i in range(n)
        for size in range(1, n + 1)
        if i + size <= len(double)
        and {"at least": size >= c["k"], "at most": size <= c["k"], "a multiple of": size % c["k"] == 0}[c["rule"]]
    ]
    return (max if c["goal"] == "largest" else min)(sums, default=0)


def split(c: Choices, values: list[int], parts: int) -> Any:
    inner, outer = (min, max) if c["goal"] == "smallest" else (max, min)
    weights = [
        outer(sum(p) if c["measure"] == "sum" else max(p) - min(p) for p in way)
        for way in pieces(values)
        if len(way) == parts
    ]
    return inner(weights, default=-1)


def apart(c: Choices, values: list[int]) -> Any:
    ways = [chosen for chosen in subsets(len(values)) if all(b - a > c["gap"] for a, b in pairwise(chosen))]
    if c["goal"] == "ways":
        return len(ways)
    return max(sum(values[i] for i in way) for way in ways if c["goal"] == "sum" or len(way) % 2 == 0)


def trades(c: Choices, values: list[int]) -> Any:
    best = 0
    for days in subsets(len(values)):
        if len(days) % 2:
            continue
        deals = list(zip(days[::2], days[1::2], strict=True))
        if c["rule"] == "limit" and len(deals) > c["k"]:
            continue
        if c["rule"] == "rest" and any(b[0] - a[1] < c["k"] for a, b in pairwise(deals)):
            continue
        fee = c["k"] * len(deals) if c["rule"] == "fee" else 0
        best = max(best, sum(values[sell] - values[buy] for buy, sell in deals) - fee)
    return best


def jumps(c: Choices, values: list[int]) -> Any:
    n = len(values)
    found = []
    for between in subsets(max(0, n - 2)):
        path = [0, *(i + 1 for i in between), *([n - 1] if n > 1 else [])]
        steps = [b - a for a, b in pairwise(path)]
        if c["goal"] == "cost":
            if all(step <= c["reach"] for step in steps):
                found.append(sum(values[i] for i in path[1:]))
        elif all(step <= values[i] for i, step in zip(path, steps, strict=False)):
            found.append(len(steps))
    if c["goal"] == "ways":
        return len(found)
    return min(found, default=-1)


def blocks_counted(c: Choices, values: list[int]) -> Any:
    k = c["k"]
    if c["goal"] == "longest":
        return max((len(b) for b in blocks(values) if len(set(b)) <= k), default=0)
    tests: dict[str, Callable[[list[int]], bool]] = {
        "sum": lambda b: sum(b) == k,
        "divisible": lambda b: sum(b) % k == 0,
        "distinct": lambda b: len(set(b)) <= k,
        "odd": lambda b: len([x for x in b if x % 2]) == k,
    }
    return len([b for b in blocks(values) if tests[c["goal"]](b)])


def inversions(c: Choices, values: list[int]) -> Any:
    def fits(y: int, x: int) -> bool:
        return bool(y - x > c["d"] if c["direction"] == "greater" else x - y > c["d"])

    counts = [len([y for y in values[:i] if fits(y, x)]) for i, x in enumerate(values)]
    return {"total": sum(counts), "each": counts, "most": max(counts, default=0)}[c["goal"]]


def ends_game(c: Choices, values: list[int]) -> Any:
    def play(left: list[int]) -> tuple[int, int]:
        if not left:
            return 0, 0
        options = []
        for t in range(1, min(c["k"], len(left)) + 1):
            for taken, rest in [(left[:t], left[t:]), *([(left[-t:], left[:-t])] if c["ends"] else [])]:
                theirs, ours = play(rest)
                options.append((sum(taken) + ours, theirs))
        return max(options, key=lambda scores: scores[0] - scores[1])

    first, second = play(values)
    return first - second if c["goal"] == "difference" else first


def meetings(c: Choices, spans: list[list[int]]) -> Any:
    def overlap(a: list[int], b: list[int]) -> bool:
        return a[0] < b[1] and b[0] < a[1] if c["touch"] else a[0] <= b[1] and b[0] <= a[1]

    times = sorted({time for span in spans for time in span})
    separate = [s for s in subsets(len(spans)) if not any(overlap(spans[i], spans[j]) for i, j in combinations(s, 2))]
    together = [s for s in subsets(len(spans)) if all(overlap(spans[i], spans[j]) for i, j in combinations(s, 2))]
    covered = {t for start, end in spans for t in range(start, end)}
    visits = next(
        size
        for size in range(len(times) + 1)
        for moments in combinations(times, size)
        if all(any(start <= moment <= end for moment in moments) for start, end in spans)
    )
    return {
        "rooms": max(map(len, together)),  # if all pairs of intervals overlap, all intervals have a common point
        "most": max(map(len, separate)),
        "worth": max(sum(spans[i][1] - spans[i][0] for i in s) for s in separate),
        "covered": len(covered),
        "visits": visits,
    }[c["goal"]]


def next_greater(c: Choices, values: list[int]) -> list[int]:
    answer = []
    for i, x in enumerate(values):
        others = values[i + 1 :] + (values[:i] if c["circular"] else [])
        at = next((j for j, y in enumerate(others, 1) if COMPARE[c["sign"]](x, y)), None)
        none = -100 if c["goal"] == "value" else 0
        answer.append(none if at is None else others[at - 1] if c["goal"] == "value" else at)
    return answer


def histogram(c: Choices, values: list[int]) -> Any:
    if c["goal"] == "water":
        levels = [min(max(values[: i + 1]), max(values[i:])) - x for i, x in enumerate(values)]
        return sum(level for level, x in zip(levels, values, strict=True) if x >= c["least"])
    areas = [min(b) * len(b) if c["goal"] == "rectangle" else min(min(b), len(b)) ** 2 for b in blocks(values)]
    return max(areas, default=0)


def cache(c: Choices, requests: list[int], capacity: int) -> Any:
    used: dict[int, int] = {}
    added: dict[int, int] = {}
    hits = []
    for time, page in enumerate(requests):
        hits.append(page in added)
        if page not in added:
            if len(added) >= capacity:
                past = requests[: time + 1]
                ranks = {p: {"used": used[p], "added": added[p], "rarely": (past.count(p), p)} for p in added}
                _, worst = min((ranks[p][c["policy"]], p) for p in added)
                del added[worst]
            added[page] = time
        used[page] = time
    runs = "".join("h" if hit else " " for hit in hits).split()
    return {"misses": hits.count(False), "contents": sorted(added), "longest": max(map(len, runs), default=0)}[
        c["goal"]
    ]


def counters(c: Choices, customers: list[list[int]]) -> Any:
    """Simulate the counters minute by minute."""
    busy = [0] * c["k"]  # time until which each counter is busy
    waits, ends = [], []
    for arrival, duration in customers:
        time = arrival
        while min(busy) > time:
            time += 1
        if c["patience"] is not None and time - arrival > c["patience"]:
            continue
        busy[next(i for i, until in enumerate(busy) if until <= time)] = time + duration
        waits.append(time - arrival)
        ends.append(time + duration)
    return {
        "end": max(ends, default=0),
        "longest": max(waits, default=0),
        "total": sum(waits),
        "waiting": waits.count(0),
    }[c["goal"]]


def medians(c: Choices, values: list[int]) -> list[int]:
    answer = []
    for i in range(len(values)):
        part = sorted(values[max(0, i + 1 - c["window"]) : i + 1] if c["window"] else values[: i + 1])
        while c["goal"] != "kth" and len(part) > 2:
            part = part[1:-1]
        down = part[::-1]
        answer.append({"lower": part[0], "upper": part[-1], "kth": [*down[: c["k"]]][-1]}[c["goal"]])
    return answer


def merging(c: Choices, values: list[int]) -> Any:
    @memoize
    def best(piles: tuple[int, ...]) -> Any:
        if len(piles) < 2:
            return 0
        options = []
        for i, j in combinations(range(len(piles)), 2):
            if c["adjacent"] and j != i + 1:
                continue
            price = max(piles[i], piles[j]) if c["cost"] == "larger" else piles[i] + piles[j]
            rest = list(piles)
            del rest[j]
            rest[i] += piles[j]
            options.append(price + best(tuple(rest)))
        return (min if c["goal"] == "min" else max)(options)

    return best(tuple(values))


def digit_count(c: Choices, n: int) -> Any:
    def fits(text: str) -> Any:
        return {
            "divisible": sum(map(int, text)) % c["k"] == 0,
            "without": str(c["digit"]) not in text,
            "rising": list(text) == sorted(text),
            "different": all(a != b for a, b in pairwise(text)),
            "at most": text.count(str(c["digit"])) <= 2,
        }[c["goal"]]

    return sum(fits(str(i)) for i in range(1, n + 1))


def multiples(c: Choices, n: int, divisors: list[int]) -> Any:
    counts = [sum(i % d == 0 for d in divisors) for i in range(1, n + 1)]
    tests: dict[str, Callable[[int], bool]] = {
        "any": lambda count: count > 0,
        "none": lambda count: count == 0,
        "one": lambda count: count == 1,
        "odd": lambda count: count % 2 == 1,
    }
    return sum(map(tests[c["goal"]], counts))


def smooth_numbers(c: Choices, factors: list[int], k: int) -> Any:
    powers = [[p**e for e in range(k)] for p in factors]
    found = {c["start"]}
    for row in powers:
        found = {x * y for x in found for y in row}
        found = set(sorted(found)[: k + 1])
    listed = sorted(found)[:k]
    gaps = [b - a for a, b in pairwise(listed)]
    return {"kth": listed[-1], "sum": sum(listed), "gap": max(gaps, default=0)}[c["goal"]]


def stones(c: Choices, given: Any) -> Any:
    @memoize
    def wins(piles: tuple[int, ...]) -> bool:
        after = moves(piles)
        return any(not wins(other) for other in after) or (not after and c["goal"] == "misere")

    def moves(piles: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [
            (*piles[:i], size - m, *piles[i + 1 :]) for i, size in enumerate(piles) for m in c["moves"] if m <= size
        ]

    if c["goal"] == "openings":
        return sum(not wins(other) for other in moves(tuple(given)))
    return sum(wins((size,)) for size in range(given + 1))


def dice(c: Choices, throws: int, total: int) -> Any:
    count = 0
    for sequence in product(range(1, c["sides"] + 1), repeat=throws):
        pairs = list(pairwise(sequence))
        fits = {
            "any": True,
            "different": all(a != b for a, b in pairs),
            "rising": all(a <= b for a, b in pairs),
        }[c["rule"]]
        count += fits and (sum(sequence) == total if c["goal"] == "exactly" else sum(sequence) >= total)
    return count


def power_cycle(c: Choices, m: int, seed: int, k: int) -> Any:
    x = [seed]
    for _ in range(k):
        x.append((x[-1] ** 2 + c["a"] * x[-1] + c["b"]) % m)
    return {"value": x[k], "index": x.index(x[k]), "tail": len(set(x[: k + 1]))}[c["goal"]]


def constrain(c: Choices, values: list[int]) -> list[int]:
    """Apply a problem's constraint to its list."""
    k = c.get("constraint_k", inf)
    match c.get("constraint"):
        case "skip":
            return [x for x in values if divmod(x, k)[1]]
        case "distinct":
            return [x for i, x in enumerate(values) if x not in values[:i]]
        case "alternate":
            return [x for i, x in enumerate(values) if i % 2 == 0]
        case "capped":
            return [k if x > k else x for x in values]
    return values

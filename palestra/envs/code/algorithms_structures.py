"""Algorithmic problems solved with data structures: intervals, stacks, queues, heaps and caches."""

from __future__ import annotations

from random import Random

from palestra.envs.code.algorithm_parts import Algorithm, integers, list_sampler
from palestra.envs.code.programs import Args

_VALUES = (("values", "a list of integers"),)


def meetings(rng: Random) -> Algorithm:
    goal = rng.choice(("rooms", "most", "worth", "covered", "visits"))
    touch = rng.random() < 0.5
    rule = (
        "A meeting that starts when another one ends does not overlap with it."
        if touch
        else "Two meetings overlap even if one of them starts exactly when the other one ends."
    )
    result = {
        "rooms": "the largest number of meetings that overlap at the same time",
        "most": "the largest number of meetings that can be chosen so that no two of them overlap",
        "worth": "the largest total duration (end minus start) of meetings that can be chosen so that no two of them "
        "overlap",
        "covered": "the total time during which at least one meeting takes place",
        "visits": "the smallest number of moments at which somebody has to look in so that every meeting is seen at "
        "least once; a meeting is also seen at the moment of its start and at the moment of its end",
    }[goal]
    code = {
        "rooms": f"""
events = [(start, {1 if touch else 0}, 1) for start, end in spans]
events += [(end, {0 if touch else 1}, -1) for start, end in spans]
now = best = 0
for _, _, change in sorted(events):
    now += change
    best = max(best, now)
return best
""",
        "most": f"""
count, free = 0, None
for start, end in sorted(spans, key=lambda span: span[1]):
    if free is None or start {">=" if touch else ">"} free:
        count += 1
        free = end
return count
""",
        "worth": f"""
spans = sorted(spans, key=lambda span: span[1])
best = []
for i, (start, end) in enumerate(spans):
    before = max((best[j] for j in range(i) if spans[j][1] {"<=" if touch else "<"} start), default=0)
    best.append(before + end - start)
return max(best, default=0)
""",
        "covered": """
total, until = 0, None
for start, end in sorted(spans):
    if until is None or start > until:
        total += end - start
        until = end
    elif end > until:
        total += end - until
        until = end
return total
""",
        "visits": """
count, last = 0, None
for start, end in sorted(spans, key=lambda span: span[1]):
    if last is None or start > last:
        count += 1
        last = end
return count
""",
    }[goal]

    def sample(rng: Random, count: int, latest: int) -> Args:
        starts = integers(rng, count, 0, latest)
        return ([[start, start + rng.randint(1, 6)] for start in starts],)

    return Algorithm(
        kind="meetings",
        takes=(("spans", "a list of [start, end] with start < end, in any order"),),
        intro=f"Each element of `spans` is a meeting.{'' if goal in ('covered', 'visits') else ' ' + rule}",
        result=f"{result} (0 if there are no meetings)",
        code=code,
        gives="natural",
        edges=(
            ([],),
            ([[2, 5]],),
            ([[0, 3], [3, 4]],),
            ([[5, 9], [0, 1]],),
            ([[0, 9], [1, 2], [3, 4]],),
            ([[1, 2]] * 3,),
        ),
        small=lambda rng: sample(rng, rng.randint(1, 7), 12),
        large=lambda rng: sample(rng, 60, 120),
        choices={"goal": goal, "touch": touch},
    )


def next_greater(rng: Random) -> Algorithm:
    name, sign = rng.choice((("greater", "<"), ("less", ">"), ("at least as large", "<="), ("at most as large", ">=")))
    than = "as" if "as large" in name else "than"
    goal = rng.choice(("value", "distance"))
    circular = rng.random() < 0.4
    side = "after it" if not circular else "after it in circular order (the first element follows the last one)"
    what = "value" if goal == "value" else "distance to the position"
    none = "-100" if goal == "value" else "0"
    put = "values[i % n]" if goal == "value" else "i - j"
    return Algorithm(
        kind="next_greater",
        takes=_VALUES,
        intro=f"For each element of `values`, find the nearest other element {side} that is {name} {than} it.",
        result=f"the {'values of' if goal == 'value' else 'distances to'} these nearest elements, one for each "
        f"element in order, with {none} where there is none",
        code=f"""
n = len(values)
answer = [{none}] * n
stack = []
for i in range({"2 * n" if circular else "n"}):
    while stack and values[stack[-1]] {sign} values[i % n]:
        j = stack.pop()
        if i - j < n:
            answer[j] = {put}
    if i < n:
        stack.append(i)
return answer
"""
        if circular
        else f"""
answer = [{none}] * len(values)
stack = []
for i, x in enumerate(values):
    while stack and values[stack[-1]] {sign} x:
        j = stack.pop()
        answer[j] = {put.replace("values[i % n]", "x")}
    stack.append(i)
return answer
""",
        gives="numbers",
        edges=(([],), ([5],), ([5, 5],), ([1, 2, 3],), ([3, 2, 1],), ([2, 1, 2, 3, 1],)),
        small=list_sampler(1, 9, -5, 9),
        large=list_sampler(300, 400, -99, 99),
        choices={"sign": sign, "goal": goal, "circular": circular, "what": what},
    )


def histogram(rng: Random) -> Algorithm:
    goal = rng.choice(("rectangle", "water", "square"))
    least = rng.randint(2, 4)
    shape = "rectangle" if goal == "rectangle" else "square"
    intro = "The numbers are the heights of columns of width 1 that stand next to each other."
    if goal == "water":
        intro += (
            " After rain, water stays above a column up to the height of the lower one of two columns: the highest "
        )
        intro += (
            "column to its left and the highest column to its right, where the column itself belongs to both sides."
        )
        result = f"the total amount of water above the columns with a height of at least {least}"
        code = f"""
total = high = 0
left = []
for x in values:
    high = max(high, x)
    left.append(high)
high = 0
for i in range(len(values) - 1, -1, -1):
    high = max(high, values[i])
    if values[i] >= {least}:
        total += min(left[i], high) - values[i]
return total
"""
    else:
        result = (
            f"the area of the largest upright {shape} that fits into the columns, or 0 if all columns have the height 0"
        )
        area = "height * width" if goal == "rectangle" else "min(height, width) ** 2"
        code = f"""
best = 0
stack = []
for i, x in enumerate(values + [0]):
    start = i
    while stack and stack[-1][1] >= x:
        start, height = stack.pop()
        width = i - start
        best = max(best, {area})
    stack.append((start, x))
return best
"""
    return Algorithm(
        kind="histogram",
        takes=(("values", "a list of non-negative integers"),),
        intro=intro,
        result=result,
        code=code,
        gives="natural",
        edges=(([],), ([5],), ([0, 0],), ([3, 3, 3],), ([5, 1, 5],), ([2, 1, 4, 5, 1, 3, 3],)),
        small=list_sampler(1, 10, 0, 8),
        large=list_sampler(300, 400, 0, 90),
        choices={"goal": goal, "least": least},
    )


def cache(rng: Random) -> Algorithm:
    policy = rng.choice(("used", "added", "rarely"))
    goal = rng.choice(("misses", "contents", "longest"))
    evict = {
        "used": "the page that was requested least recently",
        "added": "the page that was loaded into the cache first",
        "rarely": "the page with the fewest requests so far (counting also requests before it was last loaded); "
        "among those, the one with the smallest number",
    }[policy]
    hit = "pages.remove(page)\n        pages.append(page)" if policy == "used" else "pass"
    drop = "pages.remove(min(pages, key=lambda p: (counts[p], p)))" if policy == "rarely" else "pages.pop(0)"
    result = {
        "misses": "the number of requests for pages that are not in the cache at that time",
        "contents": "the pages that are in the cache at the end, in increasing order",
        "longest": "the length of the longest run of consecutive requests for pages that are in the cache at that time",
    }[goal]
    last = {"misses": "misses", "contents": "sorted(pages)", "longest": "best"}[goal]
    streak = goal == "longest"
    on_hit = "\n        run += 1\n        best = max(best, run)" if streak else ""
    on_miss = "run = 0" if streak else "misses += 1"
    return Algorithm(
        kind="cache",
        takes=(("requests", "a list of page numbers"), ("capacity", "a positive integer")),
        intro="A cache holds up to `capacity` pages and is empty at the start. If a requested page is not in the "
        f"cache, it is loaded into the cache. If the cache is already full, this page first replaces {evict}.",
        result=result,
        code=f"""
pages, counts = [], {{}}
misses = run = best = 0
for page in requests:
    counts[page] = counts.get(page, 0) + 1
    if page in pages:
        {hit}{on_hit}
    else:
        {on_miss}
        if len(pages) == capacity:
            {drop}
        pages.append(page)
return {last}
""",
        gives="numbers" if goal == "contents" else "natural",
        edges=(([], 1), ([3], 1), ([1, 1, 1], 1), ([1, 2, 1, 2], 1), ([1, 2, 3, 1, 2, 3], 2), ([2, 1, 2, 3, 1, 2], 2)),
        small=list_sampler(1, 14, 1, 5, (1, 4)),
        large=list_sampler(300, 400, 1, 30, (5, 15)),
        choices={"policy": policy, "goal": goal},
    )


def counters(rng: Random) -> Algorithm:
    k = rng.randint(1, 3)
    counters_text = ("one counter", "two counters", "three counters")[k - 1]
    goal = rng.choice(("end", "longest", "total", "waiting"))
    patience = rng.randint(3, 8)
    leave = rng.random() < 0.4
    rule = f" A customer who would have to wait longer than {patience} leaves at once." if leave else ""
    result = {
        "end": "the time at which the last customer has been served",
        "longest": "the longest time that a served customer waits before being served",
        "total": "the sum of the times that the served customers wait before being served",
        "waiting": "the number of customers who are served without waiting",
    }[goal]
    update = {
        "end": "answer = max(answer, start + duration)",
        "longest": "answer = max(answer, start - arrival)",
        "total": "answer += start - arrival",
        "waiting": "answer += start == arrival",
    }[goal]
    skip = (
        f"\n    if start - arrival > {patience}:\n        heapq.heappush(free, time)\n        continue" if leave else ""
    )

    def sample(rng: Random, count: int, gap: int) -> Args:
        time, customers = 0, []
        for _ in range(count):
            time += rng.randint(0, gap)
            customers.append([time, rng.randint(1, 9)])
        return (customers,)

    return Algorithm(
        kind="counters",
        takes=(
            (
                "customers",
                "a list of [arrival, duration] with non-negative arrivals and positive durations, sorted by arrival",
            ),
        ),
        intro=f"Customers are served in the order of the list at {counters_text}. A customer is served for the given "
        f"duration at the first counter that is free, or as soon as a counter becomes free.{rule}",
        result=f"{result} (0 if there are no customers)",
        code=f"""
import heapq
free = [0] * {k}
answer = 0
for arrival, duration in customers:
    time = heapq.heappop(free)
    start = max(time, arrival){skip}
    heapq.heappush(free, start + duration)
    {update}
return answer
""",
        gives="natural",
        edges=(
            ([],),
            ([[0, 5]],),
            ([[3, 5]],),
            ([[0, 5], [0, 5], [0, 5], [0, 5]],),
            ([[0, 9], [1, 1], [2, 1], [2, 1]],),
        ),
        small=lambda rng: sample(rng, rng.randint(1, 9), rng.choice((1, 4))),
        large=lambda rng: sample(rng, 300, 5),
        choices={"k": k, "goal": goal, "patience": patience if leave else None},
    )


def medians(rng: Random) -> Algorithm:
    goal = rng.choice(("lower", "upper", "kth"))
    k = rng.randint(2, 4)
    window = rng.choice((0, rng.randint(3, 6)))
    scope = (
        f"the last {window} elements up to and including it (fewer at the start)"
        if window
        else "all elements up to and including it"
    )
    which = {
        "lower": "the median (the smaller one of the two middle elements if their number is even)",
        "upper": "the median (the larger one of the two middle elements if their number is even)",
        "kth": f"the {k}. largest element, where equal elements count separately (the smallest one if there are fewer "
        f"than {k})",
    }[goal]
    pick = {"lower": "(len(ordered) - 1) // 2", "upper": "len(ordered) // 2", "kth": f"max(0, len(ordered) - {k})"}[
        goal
    ]
    drop = f"\n    if len(ordered) > {window}:\n        ordered.remove(values[i - {window}])" if window else ""
    return Algorithm(
        kind="medians",
        takes=_VALUES,
        intro=f"For each element of `values`, consider {scope}, and find "
        f"{which.replace(f'{k}.', {2: 'second', 3: 'third', 4: 'fourth'}[k])}.",
        result="the elements that are found, one for each element of `values` in order",
        code=f"""
import bisect
ordered, answer = [], []
for {"i, x in enumerate(values)" if window else "x in values"}:
    bisect.insort(ordered, x){drop}
    answer.append(ordered[{pick}])
return answer
""",
        gives="numbers",
        edges=(([],), ([5],), ([5, 1],), ([1, 5, 3],), ([2, 2, 2, 2],), ([9, 8, 7, 6, 5, 4],)),
        small=list_sampler(1, 10, -9, 9),
        large=list_sampler(300, 400, -500, 500),
        choices={"goal": goal, "k": k, "window": window},
    )


def merging(rng: Random) -> Algorithm:
    goal, name = rng.choice((("min", "smallest"), ("max", "largest")))
    adjacent = rng.random() < 0.6
    cost = rng.choice(("sum", "larger")) if adjacent else "sum"
    price = "sum of the two" if cost == "sum" else "larger of the two"
    which = "two adjacent piles" if adjacent else "any two piles"
    if adjacent:
        weight = "sum(values[i:j])" if cost == "sum" else "max(sum(values[i:m]), sum(values[m:j]))"
        code = f"""
n = len(values)
best = {{(i, i + 1): 0 for i in range(n)}}
for size in range(2, n + 1):
    for i in range(n - size + 1):
        j = i + size
        best[i, j] = {goal}(best[i, m] + best[m, j] + {weight} for m in range(i + 1, j))
return best[0, n] if n else 0
"""
    elif goal == "min":
        code = """
import heapq
heap = list(values)
heapq.heapify(heap)
total = 0
while len(heap) > 1:
    merged = heapq.heappop(heap) + heapq.heappop(heap)
    total += merged
    heapq.heappush(heap, merged)
return total
"""
    else:
        code = """
ordered = sorted(values, reverse=True)
total = merged = 0
for i, x in enumerate(ordered):
    merged += x
    if i > 0:
        total += merged
return total
"""
    return Algorithm(
        kind="merging",
        takes=(("values", "a list of positive integers, the sizes of piles in a row"),),
        intro=f"A step merges {which} into one pile{' at their place' if adjacent else ''}, whose size is their sum, "
        f"and costs the {price} sizes. Steps are repeated until at most one pile is left.",
        result=f"the {name} possible total cost (0 if there is at most one pile)",
        code=code,
        gives="natural",
        edges=(([],), ([5],), ([5, 1],), ([1, 5, 3],), ([2, 2, 2, 2],), ([9, 1, 1, 9],)),
        small=list_sampler(1, 6, 1, 12),
        large=list_sampler(16, 18, 1, 99),
        choices={"goal": goal, "adjacent": adjacent, "cost": cost},
    )

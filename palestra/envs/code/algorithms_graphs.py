"""Algorithmic problems on graphs, trees and grids."""

from __future__ import annotations

from random import Random

from palestra.envs.code.algorithm_parts import Algorithm, random_edges
from palestra.envs.code.programs import Args

_NODES = ("n", "a positive integer, the number of nodes")


def shortest_path(rng: Random) -> Algorithm:
    directed = rng.random() < 0.5
    goal = rng.choice(("sum", "bottleneck", "toll", "ways"))
    toll = rng.randint(2, 9)
    cost = {
        "sum": "The cost of a path is the sum of the costs of its edges.",
        "bottleneck": "The cost of a path is the largest cost of one of its edges (0 for a path without edges).",
        "toll": f"The cost of a path is the sum of the costs of its edges, plus {toll} for each node strictly between "
        "its first and its last node.",
        "ways": "The cost of a path is the sum of the costs of its edges.",
    }[goal]
    step = {"bottleneck": "max(cost, weight)", "toll": f"cost + weight + ({toll} if node > 0 else 0)"}.get(
        goal, "cost + weight"
    )
    what = "the smallest cost of a path from node 0 to node n - 1, or -1 if there is no such path"
    count = "the number of paths from node 0 to node n - 1 that have the smallest possible cost (0 if there is no path)"
    one_way = "Each edge leads from a to b only, and no edge is listed twice."
    two_way = "Each edge can be used in both directions, and there is at most one edge between two nodes."
    back = "" if directed else "\n    neighbors[b].append((a, weight))"
    search = f"""
import heapq
neighbors = [[] for _ in range(n)]
for a, b, weight in edges:
    neighbors[a].append((b, weight)){back}
best = [None] * n
queue = [(0, 0)]
while queue:
    cost, node = heapq.heappop(queue)
    if best[node] is None:
        best[node] = cost
        for other, weight in neighbors[node]:
            if best[other] is None:
                heapq.heappush(queue, ({step}, other))
"""
    counting = """
ways = [1] + [0] * (n - 1)
for node in sorted((i for i in range(n) if best[i] is not None), key=lambda i: best[i]):
    for other, weight in neighbors[node]:
        if best[node] + weight == best[other]:
            ways[other] += ways[node]
return ways[n - 1]
"""
    ending = counting if goal == "ways" else "return -1 if best[n - 1] is None else best[n - 1]"

    def sample(rng: Random) -> Args:
        n = rng.randint(1, 6)
        return n, random_edges(rng, n, rng.randint(0, 10), range(1, 8), directed=directed)

    return Algorithm(
        kind="shortest_path",
        takes=(_NODES, ("edges", "a list of edges [a, b, cost] with positive costs")),
        intro=f"The nodes of a graph are numbered from 0 to n - 1. {one_way if directed else two_way} {cost}",
        result=count if goal == "ways" else what,
        code=search.strip() + "\n" + ending.strip(),
        gives="natural" if goal == "ways" else "number",
        edges=((1, []), (2, []), (2, [[0, 1, 4]]), (2, [[1, 0, 4]]), (3, [[0, 1, 2], [1, 2, 2], [0, 2, 4]])),
        small=sample,
        large=lambda rng: (40, random_edges(rng, 40, 160, range(1, 30), directed=directed)),
        choices={"directed": directed, "goal": goal, "toll": toll},
    )


def groups(rng: Random) -> Algorithm:
    goal = rng.choice(("count", "largest", "separate", "joins", "sizes"))
    result = {
        "count": "the number of groups",
        "largest": "the number of people in the largest group",
        "separate": "the number of pairs of people who are in different groups",
        "joins": "the position, counted from 1, of the first pair in the list after which everybody is in one group "
        "when the pairs become friends one after another (0 if n is 1, -1 if that never happens)",
        "sizes": "the sizes of all groups in increasing order",
    }[goal]
    last = {
        "count": "return len(sizes)",
        "largest": "return max(sizes)",
        "separate": "return (n * n - sum(size * size for size in sizes)) // 2",
        "sizes": "return sorted(sizes)",
        "joins": "return -1",
    }[goal]
    early = "\n        left -= 1\n        if left == 1:\n            return i" if goal == "joins" else ""
    count = "" if goal == "joins" else "sizes = list(Counter(find(x) for x in range(n)).values())\n"
    first = "left = n\nif n == 1:\n    return 0\n" if goal == "joins" else "from collections import Counter\n"
    loop = "for i, (a, b) in enumerate(pairs, 1):" if goal == "joins" else "for a, b in pairs:"

    def sample(rng: Random) -> Args:
        n = rng.randint(1, 8)
        return n, random_edges(rng, n, rng.randint(0, 12))

    return Algorithm(
        kind="groups",
        takes=(("n", "a positive integer, the number of people"), ("pairs", "a list of pairs [a, b]")),
        intro="The people are numbered from 0 to n - 1. Each pair in `pairs` consists of two people who are friends. "
        "Two people are in the same group if they are connected by a chain of friends; a person without friends is a "
        "group of one.",
        result=result,
        code=f"""{first}parent = list(range(n))

def find(x):
    while parent[x] != x:
        parent[x] = parent[parent[x]]
        x = parent[x]
    return x

{loop}
    a, b = find(a), find(b)
    if a != b:
        parent[a] = b{early}
{count}{last}
""",
        gives={"sizes": "numbers", "joins": "number"}.get(goal, "natural"),
        edges=((1, []), (2, []), (2, [[0, 1]]), (4, [[0, 1], [2, 3]]), (3, [[0, 1], [1, 0], [1, 2]])),
        small=sample,
        large=lambda rng: (200, random_edges(rng, 200, rng.choice((150, 700)))),
        choices={"goal": goal},
    )


def ordering(rng: Random) -> Algorithm:
    goal = rng.choice(("rounds", "time", "order", "limited"))
    first, sign = rng.choice((("smallest", ""), ("largest", "-")))
    workers = rng.randint(2, 3)
    result = {
        "rounds": "the smallest number of rounds in which all tasks can be done, if any number of tasks can be done "
        "in a round, but not together with or before a task they need",
        "time": "the earliest time at which all tasks can be finished, if task i takes i + 1 hours and any number of "
        "tasks can be done at the same time",
        "order": f"the tasks in the order in which they are done if, at every point, the task with the {first} number "
        "among those that can be done is done next",
        "limited": f"the number of rounds that are needed if, in every round, the {workers} tasks with the {first} "
        "numbers among those that could be done at the start of the round are done (or all of them if there are "
        "fewer)",
    }[goal]
    none = "an empty list" if goal == "order" else "-1"
    prepare = """
needed = [0] * n
unlocks = [[] for _ in range(n)]
for a, b in pairs:
    needed[b] += 1
    unlocks[a].append(b)
"""
    loop = {
        "order": f"""
import heapq
queue = [{sign}i for i in range(n) if needed[i] == 0]
heapq.heapify(queue)
done = []
while queue:
    task = {sign}heapq.heappop(queue)
    done.append(task)
    for other in unlocks[task]:
        needed[other] -= 1
        if needed[other] == 0:
            heapq.heappush(queue, {sign}other)
return done if len(done) == n else []
""",
        "limited": f"""
ready = [i for i in range(n) if needed[i] == 0]
rounds = done = 0
while ready:
    rounds += 1
    ready.sort({"reverse=True" if sign else ""})
    now, ready = ready[:{workers}], ready[{workers}:]
    done += len(now)
    for task in now:
        for other in unlocks[task]:
            needed[other] -= 1
            if needed[other] == 0:
                ready.append(other)
return rounds if done == n else -1
""",
    }.get(
        goal,
        f"""
ready = [i for i in range(n) if needed[i] == 0]
start = [0] * n
latest = done = 0
while ready:
    task = ready.pop()
    done += 1
    end = start[task] + {"1" if goal == "rounds" else "task + 1"}
    latest = max(latest, end)
    for other in unlocks[task]:
        start[other] = max(start[other], end)
        needed[other] -= 1
        if needed[other] == 0:
            ready.append(other)
return latest if done == n else -1
""",
    )

    def sample(rng: Random, n: int, count: int) -> Args:
        names = rng.sample(range(n), n)
        pairs = [[names[min(a, b)], names[max(a, b)]] for a, b in random_edges(rng, n, count)]
        if pairs and rng.random() < 0.15:
            pairs.append([pairs[0][1], pairs[0][0]])
        return n, [list(pair) for pair in dict.fromkeys(map(tuple, pairs))]

    return Algorithm(
        kind="ordering",
        takes=(("n", "a positive integer, the number of tasks"), ("pairs", "a list of different pairs [a, b]")),
        intro="The tasks are numbered from 0 to n - 1. A pair [a, b] means that task b can only be done after task a.",
        result=f"{result}, or {none} if the tasks can never all be done",
        code=prepare.strip() + "\n" + loop.strip(),
        gives="numbers" if goal == "order" else "number",
        edges=((1, []), (3, []), (2, [[1, 0]]), (2, [[0, 1], [1, 0]]), (4, [[3, 2], [2, 1], [3, 1]])),
        small=lambda rng: sample(rng, rng.randint(1, 6), rng.randint(0, 8)),
        large=lambda rng: sample(rng, 60, 120),
        choices={"goal": goal, "first": first, "workers": workers},
    )


def spanning_tree(rng: Random) -> Algorithm:
    name, reverse = rng.choice((("smallest", ""), ("largest", ", reverse=True")))
    goal = rng.choice(("sum", "extreme", "parts"))
    k = rng.randint(2, 3)
    extreme = "largest" if name == "smallest" else "smallest"
    result = {
        "sum": f"the {name} possible total cost, or -1 if it is not possible",
        "extreme": f"the {name} possible value of the {extreme} cost of a kept edge, or -1 if it is not possible (0 "
        "if n is 1)",
        "parts": f"the {name} possible total cost, or -1 if it is not possible",
    }[goal]
    task = (
        f"Keep exactly n - {k} of the edges so that the graph falls into exactly {k} connected parts."
        if goal == "parts"
        else "Keep exactly n - 1 of the edges so that every node can be reached from every other node."
    )
    last = {"sum": "total", "parts": "total", "extreme": "weight_of_last"}[goal]
    missing = k if goal == "parts" else 1

    def sample(rng: Random) -> Args:
        n = rng.randint(missing, 6)
        return n, random_edges(rng, n, rng.randint(0, 10), range(1, 12))

    return Algorithm(
        kind="spanning_tree",
        takes=(
            ("n", f"an integer, at least {missing}, the number of nodes"),
            ("edges", "a list of edges [a, b, cost]"),
        ),
        intro=f"The nodes of a graph are numbered from 0 to n - 1, and the edges have no direction. {task}",
        result=result,
        code=f"""
parent = list(range(n))

def find(x):
    while parent[x] != x:
        x = parent[x]
    return x

total = weight_of_last = 0
left = n - {missing}
for a, b, weight in sorted(edges, key=lambda edge: edge[2]{reverse}):
    a, b = find(a), find(b)
    if a != b and left > 0:
        parent[a] = b
        total += weight
        weight_of_last = weight
        left -= 1
return {last} if left == 0 else -1
""",
        gives="number",
        edges=(
            (missing, []),
            (missing + 1, []),
            (missing + 1, [[0, 1, 5]]),
            (4, [[0, 1, 1], [1, 2, 2], [2, 0, 3], [2, 3, 9], [3, 0, 8]]),
        ),
        small=sample,
        large=lambda rng: (30, random_edges(rng, 30, 130, range(1, 99))),
        choices={"name": name, "goal": goal, "parts": missing},
    )


def tree(rng: Random) -> Algorithm:
    goal = rng.choice(("diameter", "independent", "subtree", "leaves", "distances"))
    depth = rng.randint(2, 3)
    result = {
        "diameter": "the largest number of edges on a path between two nodes",
        "independent": "the largest sum of the numbers of chosen nodes if no chosen node is the parent of another "
        "chosen node",
        "subtree": "the largest sum of the numbers of all nodes in a connected part of the tree that contains at "
        "least one node, if the nodes with an odd number count as negative (node 3 counts as -3)",
        "leaves": f"the number of nodes that have at least {depth} descendants (children, children of children, and "
        "so on)",
        "distances": "the sum of the numbers of edges between the two nodes, over all pairs of different nodes",
    }[goal]
    loops = {
        "diameter": """
height = [0] * n
best = 0
for node in range(n - 1, 0, -1):
    up = parents[node]
    best = max(best, height[up] + height[node] + 1)
    height[up] = max(height[up], height[node] + 1)
return best
""",
        "independent": """
taken, skipped = list(range(n)), [0] * n
for node in range(n - 1, 0, -1):
    taken[parents[node]] += skipped[node]
    skipped[parents[node]] += max(taken[node], skipped[node])
return max(taken[0], skipped[0])
""",
        "subtree": """
best = [node if node % 2 == 0 else -node for node in range(n)]
for node in range(n - 1, 0, -1):
    best[parents[node]] += max(0, best[node])
return max(best)
""",
        "leaves": f"""
below = [0] * n
for node in range(n - 1, 0, -1):
    below[parents[node]] += below[node] + 1
return sum(1 for count in below if count >= {depth})
""",
        "distances": """
size = [1] * n
total = 0
for node in range(n - 1, 0, -1):
    total += size[node] * (n - size[node])
    size[parents[node]] += size[node]
return total
""",
    }[goal]

    def sample(rng: Random, n: int) -> Args:
        reach = rng.choice((2, n))  # a small reach results in a deep tree
        return ([-1, *(rng.randrange(max(0, i - reach), i) for i in range(1, n))],)

    return Algorithm(
        kind="tree",
        takes=(("parents", "a non-empty list of integers"),),
        intro="A tree has the nodes 0 to n - 1, where n is the length of `parents`. Node 0 is the root, and "
        "`parents[0]` is -1. The parent of every other node i is `parents[i]`, which is less than i.",
        result=result,
        code="n = len(parents)\n" + loops.strip(),
        gives="natural",
        edges=(([-1],), ([-1, 0],), ([-1, 0, 0, 0],), ([-1, 0, 1, 2, 3],), ([-1, 0, 0, 1, 1, 2, 2],)),
        small=lambda rng: sample(rng, rng.randint(1, 9)),
        large=lambda rng: sample(rng, 300),
        choices={"goal": goal, "depth": depth},
    )

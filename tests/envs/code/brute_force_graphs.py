"""Slow solutions to the algorithmic problems on graphs and grids."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

from tests.envs.code.brute_force import Choices, subsets


def shortest_path(c: Choices, n: int, edges: list[list[int]]) -> Any:
    links = [*edges, *([] if c["directed"] else [[b, a, weight] for a, b, weight in edges])]
    costs: list[int] = []

    def walk(path: list[int], weights: list[int]) -> None:
        if path[-1] == n - 1:
            toll = c["toll"] * max(0, len(path) - 2) if c["goal"] == "toll" else 0
            costs.append(max(weights, default=0) if c["goal"] == "bottleneck" else sum(weights) + toll)
            return
        for a, b, weight in links:
            if a == path[-1] and b not in path:
                walk([*path, b], [*weights, weight])

    walk([0], [])
    best = min(costs, default=-1)
    return costs.count(best) if c["goal"] == "ways" else best


def grid_steps(c: Choices, grid: list[str]) -> Any:
    free = {(r, col) for r, row in enumerate(grid) for col, cell in enumerate(row) if cell == "."}
    rounds = [{(0, 0)}]
    reached = {(0, 0)}
    while rounds[-1]:
        after = {(r + dr, col + dc) for r, col in rounds[-1] for dr, dc in c["moves"]} & free - reached
        reached |= after
        rounds.append(after)
    goal = len(grid) - 1, len(grid[0]) - 1
    steps = next((i for i, cells in enumerate(rounds) if goal in cells), -1)
    return {"steps": steps, "reachable": len(reached), "farthest": len(rounds) - 2}[c["goal"]]


def partition(n: int, pairs: list[list[int]]) -> list[set[int]]:
    groups = [{i} for i in range(n)]
    for a, b, *_ in pairs:
        first = next(group for group in groups if a in group)
        second = next(group for group in groups if b in group)
        if first is not second:
            groups.remove(second)
            first |= second
    return groups


def groups(c: Choices, n: int, pairs: list[list[int]]) -> Any:
    sizes = sorted(len(group) for group in partition(n, pairs))
    if c["goal"] == "joins":
        return next((i for i in range(len(pairs) + 1) if len(partition(n, pairs[:i])) == 1), -1)
    separate = sum(a * b for a, b in combinations(sizes, 2))
    return {"count": len(sizes), "largest": sizes[-1], "separate": separate, "sizes": sizes}[c["goal"]]


def ordering(c: Choices, n: int, pairs: list[list[int]]) -> Any:
    orders = [p for p in permutations(range(n)) if all(p.index(a) < p.index(b) for a, b in pairs)]
    if not orders:
        return [] if c["goal"] == "order" else -1
    if c["goal"] == "order":
        return list(min(orders) if c["first"] == "smallest" else max(orders))
    if c["goal"] == "limited":
        done: set[int] = set()
        rounds = 0
        while len(done) < n:
            ready = [i for i in range(n) if i not in done and all(a in done for a, b in pairs if b == i)]
            done |= set(sorted(ready, reverse=c["first"] == "largest")[: c["workers"]])
            rounds += 1
        return rounds

    def finish(task: int) -> Any:
        length = 1 if c["goal"] == "rounds" else task + 1
        return length + max((finish(a) for a, b in pairs if b == task), default=0)

    return max(map(finish, range(n)))


def spanning_tree(c: Choices, n: int, edges: list[list[int]]) -> Any:
    costs = []
    for chosen in combinations(edges, n - c["parts"]):
        if len(partition(n, list(chosen))) == c["parts"]:
            weights = [weight for *_, weight in chosen]
            extreme = max if c["name"] == "smallest" else min
            costs.append(extreme(weights, default=0) if c["goal"] == "extreme" else sum(weights))
    return (min if c["name"] == "smallest" else max)(costs, default=-1)


def tree(c: Choices, parents: list[int]) -> Any:
    n = len(parents)

    def ancestors(node: int) -> list[int]:
        return [node] if node == 0 else [node, *ancestors(parents[node])]

    def distance(a: int, b: int) -> Any:
        return len(set(ancestors(a)) ^ set(ancestors(b)))

    distances = [distance(a, b) for a, b in combinations(range(n), 2)]
    if c["goal"] == "diameter":
        return max(distances, default=0)
    if c["goal"] == "distances":
        return sum(distances)
    if c["goal"] == "leaves":
        return sum(sum(i in ancestors(j)[1:] for j in range(n)) >= c["depth"] for i in range(n))
    if c["goal"] == "independent":
        return max(sum(s) for s in subsets(n) if not any(i and parents[i] in s for i in s))
    # In a tree, a set of nodes is connected if exactly one node in the set has no parent in it.
    parts = [s for s in subsets(n) if sum(parents[i] not in s for i in s) == 1]
    return max(sum(-i if i % 2 else i for i in part) for part in parts)


def islands(c: Choices, grid: list[str]) -> Any:
    land = [(r, col) for r, row in enumerate(grid) for col, cell in enumerate(row) if cell == "#"]
    near = [
        [i, j]
        for (i, a), (j, b) in combinations(enumerate(land), 2)
        if (max if c["diagonal"] else sum)((abs(a[0] - b[0]), abs(a[1] - b[1]))) == 1
    ]
    found = partition(len(land), near)
    edge = {i for i, (r, col) in enumerate(land) if r in (0, len(grid) - 1) or col in (0, len(grid[0]) - 1)}
    return {
        "count": len(found),
        "largest": max(map(len, found), default=0),
        "enclosed": sum(not group & edge for group in found),
        "border": sum(len(group) for group in found if group & edge),
    }[c["goal"]]

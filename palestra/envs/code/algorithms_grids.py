"""Algorithmic problems on grids: shortest walks and islands."""

from __future__ import annotations

from random import Random

from palestra.envs.code.algorithm_parts import Algorithm
from palestra.envs.code.programs import Args

_MOVES = {
    "straight": ("up, down, left or right", [(0, 1), (1, 0), (0, -1), (-1, 0)]),
    "slanted": (
        "up, down, left, right, diagonally down to the right or diagonally up to the left",
        [(0, 1), (1, 0), (1, 1), (0, -1), (-1, 0), (-1, -1)],
    ),
    "knight": (
        "like a knight in chess",
        [(1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1)],
    ),
    "uneven": ("two cells right, two cells down, one cell left or one cell up", [(0, 2), (2, 0), (0, -1), (-1, 0)]),
}


def grid_steps(rng: Random) -> Algorithm:
    name = rng.choice(tuple(_MOVES))
    text, moves = _MOVES[name]
    goal = rng.choice(("steps", "reachable", "farthest"))
    result = {
        "steps": "the smallest number of steps from the top left cell to the bottom right cell, or -1 if it cannot "
        "be reached",
        "reachable": "the number of cells that can be reached from the top left cell, including that cell",
        "farthest": "the largest number d for which some cell can be reached from the top left cell in d steps but "
        "not in fewer",
    }[goal]
    last = {
        "steps": "return distance.get((rows - 1, columns - 1), -1)",
        "reachable": "return len(distance)",
        "farthest": "return max(distance.values())",
    }[goal]

    def grid(rng: Random, rows: int, columns: int, walls: float) -> Args:
        cells = [["#" if rng.random() < walls else "." for _ in range(columns)] for _ in range(rows)]
        cells[0][0] = "."
        return (["".join(row) for row in cells],)

    return Algorithm(
        kind="grid_steps",
        takes=(("grid", "a list of strings of equal length; `#` is a wall and `.` is free"),),
        intro=f"A step moves {text} to a cell that is free and inside the grid; walls between the two cells do not "
        "matter. The top left cell is always free.",
        result=result,
        code=f"""
from collections import deque
rows, columns = len(grid), len(grid[0])
distance = {{(0, 0): 0}}
queue = deque([(0, 0)])
while queue:
    r, c = queue.popleft()
    for dr, dc in {moves}:
        to = r + dr, c + dc
        if 0 <= to[0] < rows and 0 <= to[1] < columns and grid[to[0]][to[1]] == "." and to not in distance:
            distance[to] = distance[r, c] + 1
            queue.append(to)
{last}
""",
        gives="number" if goal == "steps" else "natural",
        edges=((["."],), ([".."],), ([".#"],), (["...", "...", "..."],), ([".#.", ".#.", "..."],)),
        small=lambda rng: grid(rng, rng.randint(1, 5), rng.randint(1, 5), rng.choice((0.1, 0.3))),
        large=lambda rng: grid(rng, 14, 14, rng.choice((0.0, 0.2))),
        choices={"moves": moves, "goal": goal},
    )


def islands(rng: Random) -> Algorithm:
    diagonal = rng.random() < 0.5
    goal = rng.choice(("count", "largest", "enclosed", "border"))
    joined = "horizontally, vertically or diagonally" if diagonal else "horizontally or vertically"
    result = {
        "count": "the number of islands",
        "largest": "the number of cells of the largest island (0 if there is none)",
        "enclosed": "the number of islands that have no cell in the first or last row or in the first or last column",
        "border": "the number of cells that belong to islands with a cell in the first or last row or in the first "
        "or last column",
    }[goal]
    moves = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a or b) and (diagonal or not (a and b))]
    update = {
        "count": "answer += 1",
        "largest": "answer = max(answer, len(island))",
        "enclosed": "answer += not any(r in (0, rows - 1) or c in (0, columns - 1) for r, c in island)",
        "border": "if any(r in (0, rows - 1) or c in (0, columns - 1) for r, c in island):\n        answer += "
        "len(island)",
    }[goal]

    def grid(rng: Random, rows: int, columns: int, land: float) -> Args:
        return (["".join("#" if rng.random() < land else "." for _ in range(columns)) for _ in range(rows)],)

    return Algorithm(
        kind="islands",
        takes=(("grid", "a non-empty list of non-empty strings of equal length; `#` is land and `.` is water"),),
        intro=f"Cells of land that are adjacent {joined} belong to the same island.",
        result=result,
        code=f"""
rows, columns = len(grid), len(grid[0])
left = {{(r, c) for r in range(rows) for c in range(columns) if grid[r][c] == "#"}}
answer = 0
while left:
    island = [left.pop()]
    for r, c in island:
        for dr, dc in {moves}:
            if (r + dr, c + dc) in left:
                left.remove((r + dr, c + dc))
                island.append((r + dr, c + dc))
    {update}
return answer
""",
        gives="natural",
        edges=((["."],), (["#"],), (["#.#"],), (["#.", ".#"],), (["...", ".#.", "..."],), (["##", "##"],)),
        small=lambda rng: grid(rng, rng.randint(1, 6), rng.randint(1, 6), rng.choice((0.3, 0.5))),
        large=lambda rng: grid(rng, 20, 20, rng.choice((0.35, 0.55))),
        choices={"diagonal": diagonal, "goal": goal},
    )

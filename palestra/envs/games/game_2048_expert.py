"""The expert of 2048: a visible board -> the move that looks best a few moves ahead.

Expectimax: our best move, then the mean over cells where a 2 may appear (a 4 too, where few cells are left), and so on.
A position is worth the sum over its rows and columns of what each line is worth. For a small target, where turns are
scarce, that is empty cells and merges at hand; for a large one, where room is, order from large to small counts most.
Lines recur all the time, so both their slides and their worth are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

Line = tuple[int, ...]
Worth = Callable[[Line], float]
Grid = tuple[Line, ...]  # rows, or columns: what a grid is worth does not depend on which

DEAD = -1e9  # no move left


def best_move(rows: Grid, target: int) -> str:
    """up, down, left or right; "up" where the game is over."""
    worth = _quick_worth if target <= 128 else _patient_worth
    empty = sum(line.count(0) for line in rows)
    depth = 2 if empty <= 3 else 1
    best, choice = None, "up"
    columns = tuple(zip(*rows, strict=True))
    for move, lines, forward in (
        ("left", rows, True),
        ("up", columns, True),
        ("right", rows, False),
        ("down", columns, False),
    ):
        after = _slide(lines, forward)
        if after != lines:
            value = _expected(after, depth, worth)
            if best is None or value > best:
                best, choice = value, move
    return choice


def _expected(grid: Grid, depth: int, worth: Worth) -> float:
    """Mean worth after a tile appears and we answer."""
    cells = [(i, j) for i, line in enumerate(grid) for j, tile in enumerate(line) if not tile]
    if not cells:
        return _worth(grid, worth)
    fours = len(cells) <= 3
    if len(cells) > 6:
        cells = cells[:: -(-len(cells) // 6)]  # on an open board a sample of the cells says enough
    total = 0.0
    for i, j in cells:
        line = grid[i]
        value = _answer((*grid[:i], (*line[:j], 2, *line[j + 1 :]), *grid[i + 1 :]), depth, worth)
        if fours:
            other = _answer((*grid[:i], (*line[:j], 4, *line[j + 1 :]), *grid[i + 1 :]), depth, worth)
            value = 0.9 * value + 0.1 * other
        total += value
    return total / len(cells)


def _answer(grid: Grid, depth: int, worth: Worth) -> float:
    """The best we can do now."""
    best = DEAD
    for lines in (grid, tuple(zip(*grid, strict=True))):
        for forward in (True, False):
            after = _slide(lines, forward)
            if after != lines:
                value = _worth(after, worth) if depth <= 1 else _expected(after, depth - 1, worth)
                if value > best:
                    best = value
    return best


def _slide(lines: Grid, forward: bool) -> Grid:
    return tuple([_ahead(line) for line in lines] if forward else [_back(line) for line in lines])


def _worth(grid: Grid, worth: Worth) -> float:
    value = 0.0
    for line in grid:
        value += worth(line)
    for line in zip(*grid, strict=True):
        value += worth(line)
    return value


@lru_cache(maxsize=1 << 17)
def _ahead(line: Line) -> Line:
    kept = [tile for tile in line if tile]
    merged: list[int] = []
    i = 0
    while i < len(kept):
        if i + 1 < len(kept) and kept[i] == kept[i + 1]:
            merged.append(2 * kept[i])
            i += 2
        else:
            merged.append(kept[i])
            i += 1
    return (*merged, *[0] * (len(line) - len(merged)))


@lru_cache(maxsize=1 << 17)
def _back(line: Line) -> Line:
    return _ahead(line[::-1])[::-1]


@lru_cache(maxsize=1 << 17)
def _quick_worth(line: Line) -> float:
    ranks = [tile.bit_length() for tile in line]  # 0 for an empty cell
    value = 10.0 * ranks.count(0)
    falls = rises = 0
    for a, b in pairwise(ranks):
        if a and b:
            value += 2.0 * a if a == b else -abs(a - b)
        if a > b:
            falls += a - b
        else:
            rises += b - a
    return value - 2.0 * min(falls, rises)


@lru_cache(maxsize=1 << 17)
def _patient_worth(line: Line) -> float:
    ranks = [tile.bit_length() for tile in line]
    merges = sum(a == b != 0 for a, b in pairwise(ranks))
    falls = rises = 0.0
    for a, b in pairwise(ranks):
        if a > b:
            falls += a**4 - b**4
        else:
            rises += b**4 - a**4
    crowd = sum(rank**3.5 for rank in ranks)  # few large tiles rather than many small ones
    return 270.0 * ranks.count(0) + 700.0 * merges - 47.0 * min(falls, rises) - 11.0 * crowd

"""Compute the agent's view: the visible cells, the named objects on them, a description and a map."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from palestra.envs.babyai.fast_levels import DIRECTIONS
from palestra.envs.babyai.level import Level

SIZE = 7  # the view is 7 x 7 cells: six rows ahead of the agent and three columns to each side
HALF = SIZE // 2

LEGEND = (
    "^ you (facing up), # wall, . floor, k key, o ball, b box, D closed door, L locked door, _ open door, ? not visible"
)
_SYMBOLS = {"key": "k", "ball": "o", "box": "b"}


class Thing(NamedTuple):
    """A named object in view."""

    name: str  # such as "red closed door 1"; the nearest object of its kind has number 1
    kind: str  # "door", "key", "ball" or "box"
    what: Any  # minigrid's object
    pos: tuple[int, int]
    ahead: int
    right: int  # cells to the right; negative if the object is to the left


class View(NamedTuple):
    """Everything visible from one pose."""

    things: list[Thing]  # nearest first
    visible: list[tuple[int, int]]  # grid cells, including the agent's own
    floor: set[tuple[int, int]]  # visible cells the agent can stand on
    rows: list[str]  # the map, farthest row first


def _offsets() -> list[list[tuple[int, int]]]:
    """Return the offsets of the view's cells for each direction, starting with the nearest row, from left to right."""
    tables = []
    for dx, dy in DIRECTIONS:
        table = [
            (dx * ahead - dy * side, dy * ahead + dx * side) for ahead in range(SIZE) for side in range(-HALF, HALF + 1)
        ]
        tables.append(table)
    return tables


_OFFSETS = _offsets()


def view_of(level: Level) -> View:
    """Compute the view by minigrid's rule: light spreads row by row and stops at walls and closed doors."""
    width, height, cells = level.width, level.height, level.cells
    x0, y0 = level.pos
    table = _OFFSETS[level.facing]
    things: list[tuple[int, int, int, Any, tuple[int, int]]] = []
    visible: list[tuple[int, int]] = []
    floor: set[tuple[int, int]] = set()
    rows: list[str] = []
    lit = 1 << HALF
    at = 0
    for ahead in range(SIZE):
        row: list[tuple[int, int, Any]] = []
        dark = 0  # cells in this row that block the view
        bit = 1
        for dx, dy in table[at : at + SIZE]:
            x, y = x0 + dx, y0 + dy
            if 0 <= x < width and 0 <= y < height:
                cell = cells[y * width + x]
                if cell is not None and (cell.type == "wall" or (cell.type == "door" and not cell.is_open)):
                    dark |= bit
            else:
                cell = False  # minigrid shows a wall outside the grid
                dark |= bit
            row.append((x, y, cell))
            bit <<= 1
        lit, ahead_lit = _spread(lit, dark)
        symbols = ""
        for side, (x, y, cell) in enumerate(row):
            if not lit >> side & 1:
                symbols += "?"
            elif cell is False:
                symbols += "#"
            else:
                pos = (x, y)
                visible.append(pos)
                if cell is None:
                    symbols += "."
                    floor.add(pos)
                elif cell.type == "wall":
                    symbols += "#"
                else:
                    if cell.type == "door":
                        symbols += "_" if cell.is_open else "L" if cell.is_locked else "D"
                        if cell.is_open:
                            floor.add(pos)
                    else:
                        symbols += _SYMBOLS[cell.type]
                    if ahead or side != HALF:
                        things.append((ahead + abs(side - HALF), ahead, side - HALF, cell, pos))
        rows.append(symbols if ahead else f"{symbols[:HALF]}^{symbols[HALF + 1 :]}")
        if not ahead_lit:
            rows += ["?" * SIZE] * (SIZE - 1 - ahead)  # all remaining rows are dark
            break
        lit = ahead_lit
        at += SIZE
    rows.reverse()
    things.sort(key=_nearness)
    counts: dict[str, int] = {}
    named = []
    for _, ahead, right, cell, pos in things:
        name = name_of(cell)
        counts[name] = number = counts.get(name, 0) + 1
        named.append(Thing(f"{name} {number}", cell.type, cell, pos, ahead, right))
    return View(named, visible, floor, rows)


def _nearness(thing: tuple[int, int, int, Any, tuple[int, int]]) -> tuple[int, int, int]:
    return thing[:3]


@cache
def _spread(lit: int, dark: int) -> tuple[int, int]:
    """Spread light to both sides within a row. Return the lit cells in this row and the next row."""
    behind = 0
    for side in range(SIZE - 1):
        bit = 1 << side
        if lit & bit and not dark & bit:
            lit |= bit << 1
            behind |= bit | bit << 1
    for side in range(SIZE - 1, 0, -1):
        bit = 1 << side
        if lit & bit and not dark & bit:
            lit |= bit >> 1
            behind |= bit | bit >> 1
    return lit, behind


def name_of(what: Any) -> str:
    """Return a name such as "red ball" or "red locked door"."""
    if what.type == "door":
        return f"{what.color} {'open' if what.is_open else 'locked' if what.is_locked else 'closed'} door"
    return f"{what.color} {what.type}"


def describe(view: View, carrying: Any, *, with_map: bool) -> str:
    """Return a description of the view: objects and their distances, walls, the carried object and the map."""
    lines = []
    if view.things:
        lines.append("You see:")
        lines += [f"- {thing.name}: {_where(thing.ahead, thing.right)}" for thing in view.things]
    else:
        lines.append("You see nothing but walls and floor.")
    lines.append(_walls(view.rows))
    lines.append(f"You are carrying {'nothing' if carrying is None else 'a ' + name_of(carrying)}.")
    if with_map:
        lines.append("Map of your view:")
        lines += view.rows
    return "\n".join(lines)


def _where(ahead: int, right: int) -> str:
    side = "" if right == 0 else f"{abs(right)} to the {'right' if right > 0 else 'left'}"
    if ahead == 0:
        return side
    return f"{ahead} ahead, {side}" if side else f"{ahead} straight ahead"


def _walls(rows: list[str]) -> str:
    ahead = next((n for n in range(1, SIZE) if rows[SIZE - 1 - n][HALF] == "#"), None)
    own = rows[-1]
    left = next((n for n in range(1, HALF + 1) if own[HALF - n] == "#"), None)
    right = next((n for n in range(1, HALF + 1) if own[HALF + n] == "#"), None)
    distances = [(ahead, "ahead"), (left, "to the left"), (right, "to the right")]
    walls = [f"{steps} {where}" for steps, where in distances if steps is not None]
    return f"Walls: {', '.join(walls)}." if walls else "No walls in sight ahead, to the left or to the right."

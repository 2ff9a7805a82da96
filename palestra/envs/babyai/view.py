"""A world and the agent's pose -> what the agent sees: the cells in view, the things in it by name, words and a map."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from palestra.envs.babyai.engine import World
from palestra.envs.babyai.quick import STEPS

SIZE = 7  # the view is 7 x 7 cells: six ahead, three to each side
HALF = SIZE // 2

LEGEND = (
    "^ you (looking up the map), # wall, . floor, k key, o ball, b box, D closed door, L locked door, _ open door, "
    "? not visible"
)
_SIGNS = {"key": "k", "ball": "o", "box": "b"}


class Thing(NamedTuple):
    """Something in view that has a name."""

    name: str  # "red closed door 1": the nearest of its kind is number 1
    kind: str  # "door", "key", "ball", "box"
    what: Any  # minigrid's object
    pos: tuple[int, int]
    ahead: int
    right: int  # negative: to the left


class View(NamedTuple):
    """What is in view from one pose."""

    things: list[Thing]  # nearest first
    visible: list[tuple[int, int]]  # cells of the grid, the agent's own included
    floor: set[tuple[int, int]]  # those of them that can be stood on
    rows: list[str]  # the map, farthest row first


def _offsets() -> list[list[tuple[int, int]]]:
    """For each direction, the offset of every cell of the view, nearest row first, left to right."""
    tables = []
    for dx, dy in STEPS:
        table = [
            (dx * ahead - dy * side, dy * ahead + dx * side) for ahead in range(SIZE) for side in range(-HALF, HALF + 1)
        ]
        tables.append(table)
    return tables


_OFFSETS = _offsets()


def look(world: World) -> View:
    """The view, by minigrid's rule of what hides what: light spreads row by row and stops at walls and shut doors."""
    width, height, cells = world.width, world.height, world.cells
    x0, y0 = world.pos
    table = _OFFSETS[world.facing]
    things: list[tuple[int, int, int, Any, tuple[int, int]]] = []
    visible: list[tuple[int, int]] = []
    floor: set[tuple[int, int]] = set()
    rows: list[str] = []
    lit = 1 << HALF
    at = 0
    for ahead in range(SIZE):
        row: list[tuple[int, int, Any]] = []
        dark = 0  # cells of this row that hide what is behind them
        bit = 1
        for dx, dy in table[at : at + SIZE]:
            x, y = x0 + dx, y0 + dy
            if 0 <= x < width and 0 <= y < height:
                cell = cells[y * width + x]
                if cell is not None and (cell.type == "wall" or (cell.type == "door" and not cell.is_open)):
                    dark |= bit
            else:
                cell = False  # beyond the grid: minigrid shows a wall there
                dark |= bit
            row.append((x, y, cell))
            bit <<= 1
        lit, ahead_lit = _spread(lit, dark)
        signs = ""
        for side, (x, y, cell) in enumerate(row):
            if not lit >> side & 1:
                signs += "?"
            elif cell is False:
                signs += "#"
            else:
                pos = (x, y)
                visible.append(pos)
                if cell is None:
                    signs += "."
                    floor.add(pos)
                elif cell.type == "wall":
                    signs += "#"
                else:
                    if cell.type == "door":
                        signs += "_" if cell.is_open else "L" if cell.is_locked else "D"
                        if cell.is_open:
                            floor.add(pos)
                    else:
                        signs += _SIGNS[cell.type]
                    if ahead or side != HALF:
                        things.append((ahead + abs(side - HALF), ahead, side - HALF, cell, pos))
        rows.append(signs if ahead else f"{signs[:HALF]}^{signs[HALF + 1 :]}")
        if not ahead_lit:
            rows += ["?" * SIZE] * (SIZE - 1 - ahead)  # all dark
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
    """The lit cells of a row once light has run along it both ways, and those of the row behind it."""
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
    """ "red ball", "red locked door"."""
    if what.type == "door":
        return f"{what.color} {'open' if what.is_open else 'locked' if what.is_locked else 'closed'} door"
    return f"{what.color} {what.type}"


def describe(view: View, carrying: Any, *, with_map: bool) -> str:
    """The view in words: things with their distances, walls ahead and beside, what is carried."""
    lines = []
    if view.things:
        lines.append("You see:")
        lines += [f"- {thing.name}: {_where(thing.ahead, thing.right)}" for thing in view.things]
    else:
        lines.append("You see nothing but walls and floor.")
    lines.append(_walls(view.rows))
    lines.append(f"You carry {'nothing' if carrying is None else 'a ' + name_of(carrying)}.")
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
    found = [(ahead, "ahead"), (left, "to the left"), (right, "to the right")]
    told = [f"{steps} {where}" for steps, where in found if steps is not None]
    return f"Walls: {', '.join(told)}." if told else "No wall ahead or beside you in sight."

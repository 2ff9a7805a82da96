"""A grid -> what stands in it, and what can be come to: cells as the bits of one number, all neighbours in one shift.

Cell (x, y) is bit y * width + x. Grids are walled in, so that nothing shifts from one row's end into the next row.
"""

from __future__ import annotations

from typing import Any

Placed = tuple[int, int, Any]  # x, y and minigrid's object


def things_of(grid: Any) -> list[Placed]:
    """Everything but walls, column by column, as minigrid looks for things; remembered until the grid is changed."""
    known: list[Placed] | None = getattr(grid, "things", None)
    if known is None:
        width, cells, wall = grid.width, grid.grid, getattr(grid, "wall", None)
        found = [(i, cell) for i, cell in enumerate(cells) if cell is not None and cell is not wall]
        known = [(i % width, i // width, cell) for i, cell in found if cell.type != "wall"]
        known.sort(key=_place)
        if wall is not None:  # a quick grid, which forgets them when it is changed
            grid.things = known
    return known


def _place(one: Placed) -> tuple[int, int]:
    return one[:2]


def floor_of(grid: Any) -> int:
    """The cells nothing stands on."""
    return int("".join(["1" if cell is None else "0" for cell in reversed(grid.grid)]), 2)


def around(cells: int, width: int) -> int:
    """The cells beside any of `cells`."""
    return cells << 1 | cells >> 1 | cells << width | cells >> width


def flood(start: int, free: int, width: int) -> int:
    """`start` and all cells of `free` that can be come to from it."""
    reached = edge = start
    free &= ~start
    while edge:
        edge = (edge << 1 | edge >> 1 | edge << width | edge >> width) & free
        free ^= edge
        reached |= edge
    return reached

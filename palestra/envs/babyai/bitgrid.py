"""Represent sets of grid cells as integers, one bit per cell, so that four shifts compute a set's neighbors.

Cell (x, y) is bit y * width + x. The outer cells of a grid are walls, so shifted bits never wrap into the next row.
"""

from __future__ import annotations

from typing import Any

Placed = tuple[int, int, Any]  # x, y and the minigrid object


def objects_on(grid: Any) -> list[Placed]:
    """Return every object except walls, in minigrid's column-by-column order.

    Fast grids cache the result until a cell changes.
    """
    objects: list[Placed] | None = getattr(grid, "things", None)
    if objects is None:
        width, cells, wall = grid.width, grid.grid, getattr(grid, "wall", None)
        candidates = [(i, cell) for i, cell in enumerate(cells) if cell is not None and cell is not wall]
        objects = [(i % width, i // width, cell) for i, cell in candidates if cell.type != "wall"]
        objects.sort(key=_position)
        if wall is not None:  # only fast grids clear the cache when a cell changes
            grid.things = objects
    return objects


def _position(placed: Placed) -> tuple[int, int]:
    return placed[:2]


def free_cells(grid: Any) -> int:
    """Return the set of empty cells."""
    return int("".join(["1" if cell is None else "0" for cell in reversed(grid.grid)]), 2)


def neighbors(cells: int, width: int) -> int:
    """Return the cells that are adjacent to at least one of `cells`."""
    return cells << 1 | cells >> 1 | cells << width | cells >> width


def flood_fill(start: int, free: int, width: int) -> int:
    """Return `start` and all cells of `free` that are connected to it."""
    reached = edge = start
    free &= ~start
    while edge:
        edge = (edge << 1 | edge >> 1 | edge << width | edge >> width) & free
        free ^= edge
        reached |= edge
    return reached

"""Sudoku grids: solve one, and make one that has a single solution.

Cells are numbered row after row, and 0 is an empty one. Sets of numbers are bits of an integer.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from random import Random

FEWEST_CLUES = {4: 4, 9: 24, 16: 130}  # by size; with fewer, a grid with one solution is not found in milliseconds

Units = tuple[tuple[int, int, int], ...]  # the row, column and box of every cell, numbered through


@lru_cache
def units_of(size: int) -> Units:
    side = isqrt(size)
    return tuple(
        (row, size + column, 2 * size + row // side * side + column // side)
        for row in range(size)
        for column in range(size)
    )


def _taken(cells: list[int], size: int) -> list[int]:
    """For every row, column and box the set of its numbers, as bits."""
    taken = [0] * (3 * size)
    for number, units in zip(cells, units_of(size), strict=True):
        if number:
            for unit in units:
                taken[unit] |= 1 << number
    return taken


class _TooLong(Exception):
    """A search took more steps than it was given."""


def _search(
    cells: list[int], empty: list[int], taken: list[int], size: int, steps: list[int], rng: Random | None = None
) -> bool:
    """Fill the empty cells in place, the one with the fewest choices first; False: it cannot be done.

    `steps` holds how many are left; with `rng`, choices are tried in random order.
    """
    if not empty:
        return True
    steps[0] -= 1
    if steps[0] < 0:
        raise _TooLong
    units = units_of(size)
    every = (2 << size) - 2
    fewest, pick, choices = size + 1, 0, 0
    for i, cell in enumerate(empty):
        row, column, box = units[cell]
        free = every & ~(taken[row] | taken[column] | taken[box])
        count = free.bit_count()
        if count < fewest:
            if not count:
                return False
            fewest, pick, choices = count, i, free
            if count == 1:
                break
    cell = empty[pick]
    empty[pick] = empty[-1]
    empty.pop()
    row, column, box = units[cell]
    numbers = _numbers(choices)
    if rng is not None and fewest > 1:
        rng.shuffle(numbers)
    for number in numbers:
        bit = 1 << number
        cells[cell] = number
        taken[row] |= bit
        taken[column] |= bit
        taken[box] |= bit
        if _search(cells, empty, taken, size, steps, rng):
            return True
        taken[row] ^= bit
        taken[column] ^= bit
        taken[box] ^= bit
    cells[cell] = 0
    empty.append(cell)
    return False


def _numbers(bits: int) -> list[int]:
    numbers = []
    while bits:
        numbers.append((bits & -bits).bit_length() - 1)
        bits &= bits - 1
    return numbers


def _full_grid(size: int, rng: Random) -> list[int]:
    """A random full grid: the boxes on the diagonal do not see each other, so they are free; the rest is searched."""
    side = isqrt(size)
    numbers = list(range(1, size + 1))
    while True:
        cells = [0] * size**2
        for corner in range(0, size, side):
            rng.shuffle(numbers)
            for i in range(side):
                start = (corner + i) * size + corner
                cells[start : start + side] = numbers[i * side : (i + 1) * side]
        empty = [cell for cell, number in enumerate(cells) if not number]
        try:
            if _search(cells, empty, _taken(cells, size), size, [4 * size**2], rng):
                return cells
        except _TooLong:
            continue  # a bad start; another one is cheaper


def make_puzzle(size: int, clues: int, rng: Random) -> tuple[list[int], list[int]]:
    """A full grid, and the same with all but `clues` cells emptied so that it stays the only solution."""
    units = units_of(size)
    every = (2 << size) - 2
    order = list(range(size**2))
    while True:
        answer = _full_grid(size, rng)
        cells = answer[:]
        empty: list[int] = []
        taken = [every] * (3 * size)
        rng.shuffle(order)
        for cell in order:
            if len(empty) == size**2 - clues:
                return answer, cells
            without = taken[:]
            for unit in units[cell]:
                without[unit] ^= 1 << cells[cell]
            # Another solution would have another number here, for with this one there is one solution only.
            if not _others(cells, cell, empty, without, size):
                cells[cell] = 0
                empty.append(cell)
                taken = without
        if len(empty) == size**2 - clues:
            return answer, cells


def _others(cells: list[int], cell: int, empty: list[int], taken: list[int], size: int) -> bool:
    """Whether the grid might be filled with another number in `cell`."""
    row, column, box = units_of(size)[cell]
    every = (2 << size) - 2
    others = every & ~(taken[row] | taken[column] | taken[box] | 1 << cells[cell])
    steps = [500]
    for number in _numbers(others):
        with_other = taken[:]
        for unit in (row, column, box):
            with_other[unit] |= 1 << number
        try:
            if _search(cells[:], empty[:], with_other, size, steps):
                return True
        except _TooLong:
            return True  # not known: leave the clue
    return False


def deduce(cells: list[int], size: int) -> tuple[int, int]:
    """An empty cell of a grid with one solution, and the number that belongs there."""
    units = units_of(size)
    every = (2 << size) - 2
    taken = _taken(cells, size)
    empty = [cell for cell, number in enumerate(cells) if not number]
    once = [0] * (3 * size)  # numbers with a place in a unit, and with two or more
    twice = [0] * (3 * size)
    free: list[int] = []
    for cell in empty:
        row, column, box = units[cell]
        choices = every & ~(taken[row] | taken[column] | taken[box])
        if choices.bit_count() == 1:
            return cell, choices.bit_length() - 1
        free.append(choices)
        for unit in (row, column, box):
            twice[unit] |= once[unit] & choices
            once[unit] |= choices
    for cell, choices in zip(empty, free, strict=True):
        for unit in units[cell]:
            only = choices & once[unit] & ~twice[unit]
            if only:
                return cell, only.bit_length() - 1
    cell = empty[0]
    solved = cells[:]
    _search(solved, empty, taken, size, [1 << 60])  # in fact it takes few steps: see what `_others` allows
    return cell, solved[cell]

"""Solve Sudoku grids and generate puzzles with a unique solution.

A grid is a list of cells, row by row, with 0 for an empty cell. A set of numbers is an int with one bit per number.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from random import Random

# Minimum number of clues by grid size; generating puzzles with fewer clues and a unique solution would be too slow.
MIN_CLUES = {4: 4, 9: 24, 16: 130}

# Indices of the row, column and box of every cell; column indices follow the row indices, and box indices come last.
Units = tuple[tuple[int, int, int], ...]


@lru_cache
def units_of(size: int) -> Units:
    side = isqrt(size)
    return tuple(
        (row, size + column, 2 * size + row // side * side + column // side)
        for row in range(size)
        for column in range(size)
    )


def _taken(cells: list[int], size: int) -> list[int]:
    """Return the sets of numbers in each row, column and box."""
    taken = [0] * (3 * size)
    for number, units in zip(cells, units_of(size), strict=True):
        if number:
            for unit in units:
                taken[unit] |= 1 << number
    return taken


class _TooLong(Exception):
    """Raised if a search exceeds its step limit."""


def _search(
    cells: list[int], empty: list[int], taken: list[int], size: int, steps: list[int], rng: Random | None = None
) -> bool:
    """Fill the empty cells in place, starting with the fewest choices; return False if there is no solution.

    `steps` is a one-element list with the number of remaining steps. With `rng`, choices are tried in random order.
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
    """Return a random full grid; the boxes on the diagonal are filled independently, and a search fills the rest."""
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
            continue  # restarting is faster than a long search


def make_puzzle(size: int, clues: int, rng: Random) -> tuple[list[int], list[int]]:
    """Return a full grid, and a puzzle with `clues` given cells that has this grid as its only solution."""
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
            # The solution is unique as long as this cell is given, so any other solution has another number here.
            if not _has_other_solution(cells, cell, empty, without, size):
                cells[cell] = 0
                empty.append(cell)
                taken = without
        if len(empty) == size**2 - clues:
            return answer, cells


def _has_other_solution(cells: list[int], cell: int, empty: list[int], taken: list[int], size: int) -> bool:
    """Return whether the grid may have a solution with another number in `cell`."""
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
            return True  # the step limit was reached, so the clue is kept to be safe
    return False


def deduce(cells: list[int], size: int) -> tuple[int, int]:
    """Return an empty cell of a grid with a unique solution, and its number."""
    units = units_of(size)
    every = (2 << size) - 2
    taken = _taken(cells, size)
    empty = [cell for cell, number in enumerate(cells) if not number]
    once = [0] * (3 * size)  # for each unit, the numbers with at least one possible cell
    twice = [0] * (3 * size)  # for each unit, the numbers with at least two possible cells
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
    _search(solved, empty, taken, size, [1 << 60])  # fast, because `_has_other_solution` limits the difficulty
    return cell, solved[cell]

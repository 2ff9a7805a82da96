"""Sudoku: fill one cell per turn, so that no number repeats in a row, column or box."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isqrt
from operator import itemgetter
from typing import Unpack

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.envs.games.sudoku_solver import MIN_CLUES, deduce, make_puzzle, units_of
from palestra.errors import BadValue
from palestra.parsing import read_ints

Move = tuple[int, ...]  # row, column, number


class Sudoku(LanguageGame):
    """Fill a grid of `scale` x `scale` cells with `clues` given numbers and exactly one solution.

    Differences from GEM: a wrong number that does not conflict with the grid is reported as wrong, but is not a rule
    violation; a turn budget below the number of empty cells is an error. The expert uses only the visible grid and
    makes no mistakes.
    """

    title = "Sudoku"
    levels = (
        {"scale": 4, "clues": 10, "max_turns": 15},
        {"scale": 9, "clues": 50, "max_turns": 50},
    )
    shared = LanguageGame.shared | {"answer"}

    scale: int
    clues: int
    max_turns: int

    def __init__(
        self,
        *,
        clues: int | None = 30,
        max_turns: int | None = 100,
        scale: int | None = 9,
        **options: Unpack[GameOptions],
    ) -> None:
        if scale is not None:
            if scale not in MIN_CLUES:
                raise BadValue(f"scale must be {' or '.join(map(str, MIN_CLUES))}, got {scale!r}")
            if clues is not None:
                min_clues, max_clues = MIN_CLUES[scale], scale**2 - 1
                if not min_clues <= clues <= max_clues:
                    raise BadValue(f"clues must be from {min_clues} to {max_clues} at scale {scale}, got {clues}")
                if max_turns is not None and max_turns < scale**2 - clues:
                    raise BadValue(
                        f"max_turns must be at least {scale**2 - clues}, the number of cells to fill, got {max_turns}"
                    )
        super().__init__({"scale": scale, "clues": clues, "max_turns": max_turns}, **options)

    def setup(self) -> None:
        answer, cells = make_puzzle(self.scale, self.clues, self.rng)
        self.answer = tuple(answer)
        self.cells = cells  # numbers row by row, with 0 for an empty cell
        self.empty = cells.count(0)
        grid, ends = _empty_grid(self.scale)
        for number, end in zip(cells, ends, strict=True):
            if number:
                grid = _with_number(grid, end, number)
        self.text = grid  # the visible grid

    def task_key(self) -> object:
        return self.cells

    def rules(self) -> str:
        size = self.scale
        side = isqrt(size)
        return (
            f"Fill the grid of {size} rows (R1 to R{size}, from the top) and {size} columns (C1 to C{size}, from the "
            f"left). Every row, every column and every box of {side}x{side} cells must contain each number from 1 to "
            f"{size} exactly once. A dot is an empty cell; lines separate the boxes. There is exactly one solution.\n"
            "A move fills one empty cell: its row, its column and the number, separated by spaces, in this order.\n"
            "A correct number is written into the grid. A wrong number costs a turn and is not written; you are told "
            "whether it is already in the same row, column or box, or is wrong for another reason. Filled cells cannot "
            "be changed."
        )

    def example_move(self) -> str:
        return "2 1 4"

    def parse(self, text: str) -> Move | None:
        return _parse(text)

    def play(self, move: Move) -> tuple[int, str]:
        row, column, number = move
        size = self.scale
        if not (1 <= row <= size and 1 <= column <= size and 1 <= number <= size):
            return INVALID, f"row, column and number must be from 1 to {size}, not {row}, {column} and {number}."
        cells = self.cells
        cell = (row - 1) * size + column - 1
        if cells[cell]:
            return INVALID, f"R{row} C{column} is already filled with {cells[cell]}."
        if number != self.answer[cell]:
            conflict = _conflict(cells, cell, number, size)
            if conflict:
                return INVALID, f"{number} cannot be at R{row} C{column}: it is already in the same {conflict}."
            return (
                ONGOING,
                f"{number} at R{row} C{column} does not conflict with the grid, but it is not the right number.",
            )
        cells[cell] = number
        self.text = _with_number(self.text, _empty_grid(size)[1][cell], number)
        self.empty -= 1
        if not self.empty:
            return WON, f"{number} at R{row} C{column} is correct, and the grid is full. You win!"
        return ONGOING, f"{number} at R{row} C{column} is correct."

    def board(self) -> str:
        return self.text

    def solution(self) -> str:
        rows = " / ".join([" ".join(["%d"] * self.scale)] * self.scale)
        return f"The solution is, row by row: {rows % self.answer}."

    def progress(self) -> float:
        return 1.0 - self.empty / (self.scale**2 - self.clues)

    def random_move(self) -> str:
        cell = self.player_rng.choice([cell for cell, number in enumerate(self.cells) if not number])
        return self._format_move(cell, self.player_rng.randint(1, self.scale))

    def expert_move(self) -> str:
        return self._format_move(*deduce(self.cells, self.scale))

    def _format_move(self, cell: int, number: int) -> str:
        row, column = divmod(cell, self.scale)
        return f"{row + 1} {column + 1} {number}"


@lru_cache(maxsize=1 << 12)  # many games contain the same moves
def _parse(text: str) -> Move | None:
    numbers = read_ints(text, 3)
    return None if numbers is None else tuple(numbers)


@lru_cache
def _numbers_of(size: int) -> list[Callable[[list[int]], tuple[int, ...]]]:
    """Return, for every row, column and box, a function that extracts its numbers from the cells."""
    return [
        itemgetter(*(cell for cell, units in enumerate(units_of(size)) if unit in units)) for unit in range(3 * size)
    ]


@lru_cache
def _empty_grid(size: int) -> tuple[str, list[int]]:
    """Return the empty grid as text, and the text index of each cell's last character."""
    side = isqrt(size)
    label = len(f"R{size}")

    def line(head: str, fields: list[str]) -> list[str]:
        boxes = ["".join(f" {field:>{label}}" for field in fields[i : i + side]) for i in range(0, size, side)]
        return [head.ljust(label), *boxes]

    head, *names = line("", [f"C{column + 1}" for column in range(size)])
    lines = [head + "  ".join(names)]
    for row in range(size):
        head, *boxes = line(f"R{row + 1}", ["."] * size)
        lines.append(head + " |".join(boxes))
        if (row + 1) % side == 0 and row + 1 < size:
            lines.append(" " * label + "-+".join(["-" * len(boxes[0])] * side))
    text = "\n".join(lines)
    return text, [index for index, char in enumerate(text) if char == "."]


def _with_number(text: str, end: int, number: int) -> str:
    digits = str(number)
    return f"{text[: end + 1 - len(digits)]}{digits}{text[end + 1 :]}"


def _conflict(cells: list[int], cell: int, number: int, size: int) -> str | None:
    """Return "row", "column" or "box" if that unit already contains the number, else None."""
    numbers_of = _numbers_of(size)
    for name, unit in zip(("row", "column", "box"), units_of(size)[cell], strict=True):
        if number in numbers_of[unit](cells):
            return name
    return None

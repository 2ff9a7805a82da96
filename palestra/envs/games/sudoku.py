"""Sudoku: fill a grid so that no number repeats in a row, a column or a box, one cell a turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isqrt
from operator import itemgetter
from typing import Unpack

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.envs.games.sudoku_solver import FEWEST_CLUES, deduce, make_puzzle, units_of
from palestra.errors import BadValue
from palestra.parsing import read_ints

Move = tuple[int, ...]  # row, column, number


class Sudoku(LanguageGame):
    """A grid of `scale` x `scale` cells, `clues` of them filled; there is exactly one way to fill the others.

    Differs from GEM: a number that clashes with nothing, yet is not the solution's, is a move that counts and is told
    to be wrong, not a breach of the rules; a budget below the number of empty cells is an error.
    The expert reasons from the shown grid alone and never errs.
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
            if scale not in FEWEST_CLUES:
                raise BadValue(f"scale is {' or '.join(map(str, FEWEST_CLUES))}, got {scale!r}")
            if clues is not None:
                fewest, most = FEWEST_CLUES[scale], scale**2 - 1
                if not fewest <= clues <= most:
                    raise BadValue(f"clues go from {fewest} to {most} at scale {scale}, got {clues}")
                if max_turns is not None and max_turns < scale**2 - clues:
                    raise BadValue(
                        f"{clues} clues leave {scale**2 - clues} cells to fill: raise max_turns from {max_turns}"
                    )
        super().__init__({"scale": scale, "clues": clues, "max_turns": max_turns}, **options)

    def setup(self) -> None:
        answer, cells = make_puzzle(self.scale, self.clues, self.rng)
        self.answer = tuple(answer)
        self.cells = cells  # row after row, 0 where empty
        self.empty = cells.count(0)
        blank, places = _blank(self.scale)
        for number, place in zip(cells, places, strict=True):
            if number:
                blank = _written(blank, place, number)
        self.text = blank  # the grid as shown, kept up to date

    def rules(self) -> str:
        size = self.scale
        side = isqrt(size)
        return (
            f"Fill the grid of {size} rows (R1 to R{size}, from the top) and {size} columns (C1 to C{size}, from the "
            f"left). Every row, every column and every box of {side}x{side} cells must hold each number from 1 to "
            f"{size} once. A dot is an empty cell; lines part the boxes. There is exactly one solution.\n"
            "A move fills one empty cell: its row, its column and the number, in this order.\n"
            "A number that is right stays. A wrong one costs the turn and is not written down: you are told whether "
            "it stands in the row, column or box already, or just is not the number of that cell. Filled cells cannot "
            "be changed."
        )

    def example_move(self) -> str:
        return "2 1 4"

    def parse(self, text: str) -> Move | None:
        return _read(text)

    def play(self, move: Move) -> tuple[int, str]:
        row, column, number = move
        size = self.scale
        if not (1 <= row <= size and 1 <= column <= size and 1 <= number <= size):
            return INVALID, f"row, column and number go from 1 to {size}, not {row}, {column} and {number}."
        cells = self.cells
        cell = (row - 1) * size + column - 1
        if cells[cell]:
            return INVALID, f"R{row} C{column} is filled already: it holds {cells[cell]}."
        if number != self.answer[cell]:
            clash = _clash(cells, cell, number, size)
            if clash:
                return INVALID, f"{number} cannot be at R{row} C{column}: it stands in the same {clash} already."
            return ONGOING, f"{number} clashes with nothing at R{row} C{column}, but it is not right there."
        cells[cell] = number
        self.text = _written(self.text, _blank(size)[1][cell], number)
        self.empty -= 1
        if not self.empty:
            return WON, f"{number} at R{row} C{column} is right, and the grid is full. You win!"
        return ONGOING, f"{number} at R{row} C{column} is right."

    def board(self) -> str:
        return self.text

    def solution(self) -> str:
        rows = " / ".join([" ".join(["%d"] * self.scale)] * self.scale)
        return f"The solution is, row by row: {rows % self.answer}."

    def progress(self) -> float:
        return 1.0 - self.empty / (self.scale**2 - self.clues)

    def random_move(self) -> str:
        cell = self.player_rng.choice([cell for cell, number in enumerate(self.cells) if not number])
        return self._written_move(cell, self.player_rng.randint(1, self.scale))

    def expert_move(self) -> str:
        return self._written_move(*deduce(self.cells, self.scale))

    def _written_move(self, cell: int, number: int) -> str:
        row, column = divmod(cell, self.scale)
        return f"{row + 1} {column + 1} {number}"


@lru_cache(maxsize=1 << 12)  # players write the same few moves over and over
def _read(text: str) -> Move | None:
    numbers = read_ints(text, 3)
    return None if numbers is None else tuple(numbers)


@lru_cache
def _numbers_of(size: int) -> list[Callable[[list[int]], tuple[int, ...]]]:
    """For every row, column and box a function that takes its numbers from the cells."""
    return [
        itemgetter(*(cell for cell, units in enumerate(units_of(size)) if unit in units)) for unit in range(3 * size)
    ]


@lru_cache
def _blank(size: int) -> tuple[str, list[int]]:
    """The empty grid as text, and for every cell where its number ends there."""
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
    return text, [place for place, char in enumerate(text) if char == "."]


def _written(text: str, place: int, number: int) -> str:
    digits = str(number)
    return f"{text[: place + 1 - len(digits)]}{digits}{text[place + 1 :]}"


def _clash(cells: list[int], cell: int, number: int, size: int) -> str | None:
    """Where the number stands already that would go into the cell: in its row, its column or its box."""
    numbers_of = _numbers_of(size)
    for name, unit in zip(("row", "column", "box"), units_of(size)[cell], strict=True):
        if number in numbers_of[unit](cells):
            return name
    return None

"""Minesweeper: open every cell without a mine, guided by the numbers of mines around the open cells."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Unpack

from palestra.envs.games.base import INVALID, LOST, ONGOING, WON, GameOptions, LanguageGame
from palestra.envs.games.minesweeper_solver import best_cell, neighbours
from palestra.errors import BadValue

HIDDEN, FLAG = ".", "F"
MINE = 9  # in the numbers of a laid board
SHOWN = "012345678*"  # how an open cell looks, by its number
LARGEST = 30  # rows or columns: the expert stays quick

_MOVE = re.compile(r"[\s(\[]*([a-z]+)[\s:,(\[]*([+-]?[0-9]{1,9})[\s,]+([+-]?[0-9]{1,9})[\s)\].]*", re.IGNORECASE)


class Minesweeper(LanguageGame):
    """`num_mines` mines lie hidden on a board of `rows` x `cols` cells; open all the others, one `reveal` a turn.

    A seed fixes an order of the cells, and the first reveal puts the mines on the first of them that are not beside
    it, so its neighbours are free too wherever the board has room.

    Differs from GEM: opening the last free cell wins, flags are only notes (GEM also wants every mine flagged);
    revealing a flagged cell is refused whether or not it hides a mine.
    The expert knows every board that fits the numbers. It opens what is certainly free, and else the cell that most
    often leads to a win (few boards left) or is likeliest free now and next (many); some boards need luck.
    """

    title = "Minesweeper"
    levels = tuple({"rows": n, "cols": n, "num_mines": n * n // 5, "max_turns": n * n} for n in range(5, 9))
    shared = LanguageGame.shared | {"order"}

    rows: int
    cols: int
    num_mines: int
    max_turns: int

    def __init__(
        self,
        *,
        rows: int | None = 8,
        cols: int | None = 8,
        num_mines: int | None = 10,
        max_turns: int | None = 64,
        **options: Unpack[GameOptions],
    ) -> None:
        super().__init__({"rows": rows, "cols": cols, "num_mines": num_mines, "max_turns": max_turns}, **options)
        for name, size in (("rows", rows), ("cols", cols)):
            if size is not None and not 2 <= size <= LARGEST:
                raise BadValue(f"{name} must lie between 2 and {LARGEST}, got {size!r}")
        if num_mines is not None and num_mines < 1:
            raise BadValue(f"num_mines is at least 1, got {num_mines!r}")
        if rows and cols and num_mines and num_mines >= rows * cols:
            raise BadValue(f"{rows} x {cols} cells take at most {rows * cols - 1} mines, got {num_mines}")

    def setup(self) -> None:
        cells = self.rows * self.cols
        # Where the mines will go; the first reveal and its at most eight neighbours may take nine places out.
        self.order = self.rng.sample(range(cells), min(cells, self.num_mines + 9))
        self.numbers = b""  # by cell, once the mines are laid
        self.view = [HIDDEN] * cells  # what the player sees
        self.to_open = cells - self.num_mines

    def rules(self) -> str:
        return (
            f"{self.num_mines} mines are hidden on a board of {self.rows} rows and {self.cols} columns. Reveal every "
            "cell that has no mine. Revealing a mine loses the game.\n"
            "Rows and columns are counted from 0; the board shows their numbers at its left and its top.\n"
            "A move is 'reveal ROW COLUMN' or 'flag ROW COLUMN'. Reveal opens a cell. Flag marks a cell as a suspected "
            "mine, or takes the mark away again; a flagged cell cannot be revealed, and flags are not needed to win.\n"
            "On the board . is a hidden cell, F a flagged one, and a digit an open cell: it says how many of the up to "
            "8 cells around it have mines. Around a 0 all cells are opened for you, except flagged ones.\n"
            "The first cell you reveal is never a mine, nor are its neighbours where the board has room."
        )

    def example_move(self) -> str:
        return "reveal 0 1"

    def parse(self, text: str) -> tuple[str, int, int] | None:
        found = _MOVE.fullmatch(text)
        return None if found is None else (found[1].lower(), int(found[2]), int(found[3]))

    def play(self, move: tuple[str, int, int]) -> tuple[int, str]:
        verb, row, col = move
        if not (0 <= row < self.rows and 0 <= col < self.cols):
            return INVALID, f"row {row}, column {col} lies outside the board."
        cell = row * self.cols + col
        seen = self.view[cell]
        if verb == "reveal":
            if seen == HIDDEN:
                return self._reveal(cell, f"row {row}, column {col}")
            if seen == FLAG:
                return INVALID, f"row {row}, column {col} is flagged; take the flag away first to reveal it."
            return INVALID, f"row {row}, column {col} is open already."
        if verb != "flag":
            return INVALID, "a move begins with reveal or flag."
        if seen == HIDDEN:
            self.view[cell] = FLAG
            return ONGOING, f"row {row}, column {col} is flagged now."
        if seen == FLAG:
            self.view[cell] = HIDDEN
            return ONGOING, f"row {row}, column {col} is no longer flagged."
        return INVALID, f"row {row}, column {col} is open and cannot be flagged."

    def _reveal(self, cell: int, place: str) -> tuple[int, str]:
        numbers = self.numbers or self._lay_mines(cell)
        view, around = self.view, neighbours(self.rows, self.cols)
        number = numbers[cell]
        view[cell] = SHOWN[number]
        if number == MINE:
            return LOST, f"{place} is a mine. You lose."
        opened = 1
        zeros = [] if number else [cell]
        while zeros:
            for near in around[zeros.pop()]:
                if view[near] == HIDDEN:
                    view[near] = SHOWN[numbers[near]]
                    opened += 1
                    if not numbers[near]:
                        zeros.append(near)
        self.to_open -= opened
        if not self.to_open:
            return WON, f"{place} shows {number}. Every cell without a mine is open. You win!"
        if opened > 1:
            return ONGOING, f"{place} shows 0, and {opened - 1} more cells opened."
        return ONGOING, f"{place} shows {number}."

    def _lay_mines(self, first: int) -> bytes:
        around = neighbours(self.rows, self.cols)
        beside = around[first]
        far = [cell for cell in self.order if cell != first and cell not in beside]
        mines = (far + [cell for cell in self.order if cell in beside])[: self.num_mines]
        numbers = bytearray(len(self.view))
        for mine in mines:
            for near in around[mine]:
                numbers[near] += 1
        for mine in mines:
            numbers[mine] = MINE
        self.numbers = bytes(numbers)
        return self.numbers

    def board(self) -> str:
        return _frame(self.rows, self.cols) % tuple(self.view)

    def solution(self) -> str:
        mines = [f"({cell // self.cols}, {cell % self.cols})" for cell, n in enumerate(self.numbers) if n == MINE]
        return f"The mines, as (row, column): {', '.join(mines)}." if mines else ""

    def progress(self) -> float:
        return 1.0 - self.to_open / (len(self.view) - self.num_mines)

    def random_move(self) -> str:
        rng = self.player_rng
        cell = rng.choice([cell for cell, seen in enumerate(self.view) if seen in (HIDDEN, FLAG)])
        verb = "reveal" if self.view[cell] == HIDDEN and rng.random() < 0.9 else "flag"
        return f"{verb} {cell // self.cols} {cell % self.cols}"

    def expert_move(self) -> str:
        cell = best_cell(self.view, self.rows, self.cols, self.num_mines)
        verb = "flag" if self.view[cell] == FLAG else "reveal"  # a flag in the way is taken off first
        return f"{verb} {cell // self.cols} {cell % self.cols}"


@lru_cache(maxsize=64)
def _frame(rows: int, cols: int) -> str:
    """The board with %s for every cell."""
    width = len(str(cols - 1)) + 1
    left = len(str(rows - 1))
    lines = [" " * left + "".join(str(col).rjust(width) for col in range(cols))]
    lines += [str(row).rjust(left) + (" " * (width - 1) + "%s") * cols for row in range(rows)]
    return "\n".join(lines)

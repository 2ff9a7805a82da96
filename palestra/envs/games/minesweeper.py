"""Minesweeper: reveal every cell without a mine, using the mine counts in revealed cells."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Unpack

from palestra.envs.games.base import INVALID, LOST, ONGOING, WON, GameOptions, LanguageGame
from palestra.envs.games.minesweeper_solver import best_cell, neighbours
from palestra.errors import BadValue

HIDDEN, FLAG = ".", "F"
MINE = 9  # marks a mine in the list of mine counts
SYMBOLS = "012345678*"  # symbols of revealed cells by mine count; * is a mine
LARGEST = 30  # maximum number of rows and columns; keeps the expert fast

_MOVE = re.compile(r"[\s(\[]*([a-z]+)[\s:,(\[]*([+-]?[0-9]{1,9})[\s,]+([+-]?[0-9]{1,9})[\s)\].]*", re.IGNORECASE)


class Minesweeper(LanguageGame):
    """Reveal all cells without a mine on a board of `rows` x `cols` cells with `num_mines` mines.

    The seed determines a random order of the cells. The first reveal places the mines on the first cells in that order
    that are not adjacent to the revealed cell, so that its neighbors are also free if the board is large enough.

    Differences from GEM: revealing the last free cell wins, and flags are optional (GEM also requires every mine to be
    flagged). Revealing a flagged cell is rejected whether or not it contains a mine. The expert considers every board
    that is consistent with the visible numbers. If a cell is certainly free, the expert reveals it. Otherwise, it
    reveals the cell with the highest probability of winning (if few boards remain) or of surviving this and the next
    move (if many remain). Some boards require luck.
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
                raise BadValue(f"{name} must be from 2 to {LARGEST}, got {size!r}")
        if num_mines is not None and num_mines < 1:
            raise BadValue(f"num_mines must be at least 1, got {num_mines!r}")
        if rows and cols and num_mines and num_mines >= rows * cols:
            raise BadValue(f"num_mines must be at most {rows * cols - 1} on {rows} x {cols} cells, got {num_mines}")

    def setup(self) -> None:
        cells = self.rows * self.cols
        # Candidate cells for mines. The first reveal excludes up to nine of them: the revealed cell and its neighbors.
        self.order = self.rng.sample(range(cells), min(cells, self.num_mines + 9))
        self.numbers = b""  # mine count per cell; empty until the mines are placed
        self.view = [HIDDEN] * cells  # cells as displayed to the player
        self.to_reveal = cells - self.num_mines

    def task_key(self) -> object:
        return self.rows, self.cols, self.order

    def rules(self) -> str:
        return (
            f"{self.num_mines} mines are hidden on a board of {self.rows} rows and {self.cols} columns. Reveal every "
            "cell that has no mine. Revealing a mine loses the game.\n"
            "Rows and columns are numbered from 0; the numbers are shown to the left of the board and above it.\n"
            "A move is 'reveal ROW COLUMN' or 'flag ROW COLUMN'. Flag marks a cell as a suspected mine, or removes the "
            "mark again; a flagged cell cannot be revealed, and flags are not needed to win.\n"
            "On the board, . is a hidden cell, F is a flagged cell, and a digit is a revealed cell. The digit is the "
            "number of mines in the (up to 8) cells around it. If it is 0, the cells around it are also revealed, "
            "except flagged cells.\n"
            "The first cell you reveal is never a mine, nor are its neighbors if the board is large enough."
        )

    def example_move(self) -> str:
        return "reveal 0 1"

    def parse(self, text: str) -> tuple[str, int, int] | None:
        match = _MOVE.fullmatch(text)
        return None if match is None else (match[1].lower(), int(match[2]), int(match[3]))

    def play(self, move: tuple[str, int, int]) -> tuple[int, str]:
        verb, row, col = move
        if not (0 <= row < self.rows and 0 <= col < self.cols):
            return INVALID, f"row {row}, column {col} is outside the board."
        cell = row * self.cols + col
        seen = self.view[cell]
        if verb == "reveal":
            if seen == HIDDEN:
                return self._reveal(cell, f"row {row}, column {col}")
            if seen == FLAG:
                return INVALID, f"row {row}, column {col} is flagged; remove the flag before you reveal it."
            return INVALID, f"row {row}, column {col} is already revealed."
        if verb != "flag":
            return INVALID, "a move must start with reveal or flag."
        if seen == HIDDEN:
            self.view[cell] = FLAG
            return ONGOING, f"row {row}, column {col} is now flagged."
        if seen == FLAG:
            self.view[cell] = HIDDEN
            return ONGOING, f"row {row}, column {col} is no longer flagged."
        return INVALID, f"row {row}, column {col} is revealed and cannot be flagged."

    def _reveal(self, cell: int, place: str) -> tuple[int, str]:
        numbers = self.numbers or self._place_mines(cell)
        view, around = self.view, neighbours(self.rows, self.cols)
        number = numbers[cell]
        view[cell] = SYMBOLS[number]
        if number == MINE:
            return LOST, f"{place} is a mine. You lose."
        revealed = 1
        zeros = [] if number else [cell]
        while zeros:
            for neighbour in around[zeros.pop()]:
                if view[neighbour] == HIDDEN:
                    view[neighbour] = SYMBOLS[numbers[neighbour]]
                    revealed += 1
                    if not numbers[neighbour]:
                        zeros.append(neighbour)
        self.to_reveal -= revealed
        if not self.to_reveal:
            return WON, f"{place} shows {number}. Every cell without a mine is revealed. You win!"
        if revealed > 1:
            return ONGOING, f"{place} shows 0, and {revealed - 1} more cells were revealed."
        return ONGOING, f"{place} shows {number}."

    def _place_mines(self, first: int) -> bytes:
        around = neighbours(self.rows, self.cols)
        adjacent = around[first]
        distant = [cell for cell in self.order if cell != first and cell not in adjacent]
        mines = (distant + [cell for cell in self.order if cell in adjacent])[: self.num_mines]
        numbers = bytearray(len(self.view))
        for mine in mines:
            for neighbour in around[mine]:
                numbers[neighbour] += 1
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
        return 1.0 - self.to_reveal / (len(self.view) - self.num_mines)

    def random_move(self) -> str:
        rng = self.player_rng
        cell = rng.choice([cell for cell, seen in enumerate(self.view) if seen in (HIDDEN, FLAG)])
        verb = "reveal" if self.view[cell] == HIDDEN and rng.random() < 0.9 else "flag"
        return f"{verb} {cell // self.cols} {cell % self.cols}"

    def expert_move(self) -> str:
        cell = best_cell(self.view, self.rows, self.cols, self.num_mines)
        # Flagging a flagged cell removes its flag, so that the cell can be revealed in the next turn.
        verb = "flag" if self.view[cell] == FLAG else "reveal"
        return f"{verb} {cell // self.cols} {cell % self.cols}"


@lru_cache(maxsize=64)
def _frame(rows: int, cols: int) -> str:
    """Return the board as a template with one %s per cell."""
    width = len(str(cols - 1)) + 1
    left = len(str(rows - 1))
    lines = [" " * left + "".join(str(col).rjust(width) for col in range(cols))]
    lines += [str(row).rjust(left) + (" " * (width - 1) + "%s") * cols for row in range(rows)]
    return "\n".join(lines)

"""2048: slide and merge tiles until the target tile appears."""

from __future__ import annotations

from functools import lru_cache
from typing import Unpack

from palestra.envs.games.base import INVALID, LOST, ONGOING, WON, GameOptions, LanguageGame
from palestra.envs.games.game_2048_solver import expert, slid
from palestra.errors import BadValue

DIRECTIONS = ("up", "down", "left", "right")
# The board may have a 4 at the start, so the target must be at least 8; 131072 is the largest tile on a 4 x 4 board.
SMALLEST_TARGET, LARGEST_TARGET = 8, 131072


class Game2048(LanguageGame):
    """Slide the tiles of a `board_size` x `board_size` board until one of them is `target_tile`.

    Difference from GEM: a turn budget that is too small is an error. The sum of the tiles is at most 8 at the start,
    and every turn except the winning turn adds at most 4, so `target_tile` must be at most `4 * (max_turns + 1)`. A
    turn adds 2.2 on average; the turn budgets of the registered variants are sufficient for that. The expert looks one
    to three moves ahead and averages over the new tiles; it can still lose on a crowded board.
    """

    title = "2048"
    filters_tasks = False  # there are too few tasks to hold any out
    levels = tuple({"target_tile": tile, "max_turns": turns} for tile, turns in ((16, 20), (32, 30), (64, 50)))

    target_tile: int
    max_turns: int
    board_size: int

    def __init__(
        self,
        *,
        target_tile: int | None = 2048,
        max_turns: int | None = 1200,
        board_size: int = 4,
        **options: Unpack[GameOptions],
    ) -> None:
        super().__init__({"target_tile": target_tile, "max_turns": max_turns, "board_size": board_size}, **options)
        if not 3 <= board_size <= 8:
            raise BadValue(f"board_size must be from 3 to 8, got {board_size!r}")
        if target_tile is None:
            return
        if target_tile & (target_tile - 1) or not SMALLEST_TARGET <= target_tile <= LARGEST_TARGET:
            raise BadValue(
                f"target_tile must be a power of two from {SMALLEST_TARGET} to {LARGEST_TARGET}, got {target_tile}"
            )
        if target_tile > 2 ** (board_size**2 + 1):  # the board has too few cells for the tiles that must exist at once
            raise BadValue(
                f"target_tile={target_tile} is not reachable on {board_size} x {board_size} cells; raise board_size"
            )
        if max_turns is not None and target_tile > 4 * (max_turns + 1):
            raise BadValue(
                f"max_turns must be at least {target_tile // 4 - 1} for target_tile={target_tile}, because a turn "
                f"adds at most 4 (twice as many turns are realistic), got {max_turns}"
            )

    def setup(self) -> None:
        # Tile ranks, row by row: 0 for an empty cell, 1 for 2, 2 for 4, 3 for 8, ...
        self.cells = [0] * self.board_size**2
        self.goal = self.target_tile.bit_length() - 1
        self._add_tile()
        self._add_tile()
        self.initial_rank = max(self.cells)

    def _add_tile(self) -> int:
        """Place a 2 or a 4 on a random empty cell, and return the number of remaining empty cells."""
        empty = [i for i, rank in enumerate(self.cells) if not rank]
        self.cells[self.rng.choice(empty)] = self.newest = 1 if self.rng.random() < 0.9 else 2
        return len(empty) - 1

    def task_key(self) -> object:
        return self.cells

    def rules(self) -> str:
        return (
            f"The board has {self.board_size} x {self.board_size} cells; a number is a tile, a dot is an empty cell. "
            f"Make a tile that shows {self.target_tile}.\n"
            "A move is one of up, down, left, right. It slides all tiles in that direction as far as possible. When "
            "two equal tiles meet, they merge into one tile with twice the number. Tiles merge first at the side they "
            "slide to, and a merged tile does not merge again in the same move.\n"
            "After every move, a 2 (9 times out of 10) or a 4 appears on a random empty cell. A move that would change "
            "nothing is rejected and costs a turn. If no move can change the board, you lose."
        )

    def example_move(self) -> str:
        return "left"

    def parse(self, text: str) -> str | None:
        word = text.strip(" \t\n.,'\"()[]").lower()
        return word if word in DIRECTIONS else None

    def play(self, move: str) -> tuple[int, str]:
        cells = self.cells
        moved = False
        for line in _lines(self.board_size)[move]:
            before = tuple(cells[line])
            after = slid(before)
            if after != before:
                cells[line] = after
                moved = True
        if not moved:
            return INVALID, f"sliding {move} changes nothing. Choose another direction."
        if max(cells) >= self.goal:
            return WON, f"you slid {move} and made {self.target_tile}. You win!"
        if not self._add_tile() and not self._movable():
            return LOST, f"you slid {move}, a {2**self.newest} appeared, and no further move is possible. You lose."
        return ONGOING, f"you slid {move}, and a {2**self.newest} appeared."

    def _movable(self) -> list[str]:
        """Return the directions that change the board."""
        cells = self.cells
        return [
            direction
            for direction, lines in _lines(self.board_size).items()
            if any(slid(line) != line for line in [tuple(cells[cut]) for cut in lines])
        ]

    def board(self) -> str:
        size, cells = self.board_size, self.cells
        width = max(4, len(str(self.target_tile)))
        return "\n".join([_row_text(tuple(cells[i : i + size]), width) for i in range(0, len(cells), size)])

    def solution(self) -> str:
        return f"The largest tile was {2 ** max(self.cells)}; the target was {self.target_tile}."

    def progress(self) -> float:
        return (max(self.cells) - self.initial_rank) / (self.goal - self.initial_rank)

    def random_move(self) -> str:
        return self.player_rng.choice(self._movable() or DIRECTIONS)

    def expert_move(self) -> str:
        return expert(self.board_size, self.goal).direction(self.cells)


@lru_cache(maxsize=8)
def _lines(size: int) -> dict[str, tuple[slice, ...]]:
    """Return, for each direction, the slices of the flat board that slide together."""
    cells, line = size * size, range(size)
    return {
        "up": tuple(slice(i, None, size) for i in line),
        "down": tuple(slice(cells - size + i, None, -size) for i in line),
        "left": tuple(slice(i * size, (i + 1) * size) for i in line),
        "right": tuple(slice((i + 1) * size - 1, i * size - 1 if i else None, -1) for i in line),
    }


@lru_cache(maxsize=1 << 16)
def _row_text(row: tuple[int, ...], width: int) -> str:
    return " ".join((str(2**rank) if rank else ".").rjust(width) for rank in row)

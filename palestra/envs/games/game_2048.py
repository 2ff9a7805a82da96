"""2048: slide all tiles to one side, merge equal ones, reach the target tile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Unpack

from palestra.envs.games.base import INVALID, LOST, ONGOING, WON, GameOptions, LanguageGame
from palestra.errors import BadValue

DIRECTIONS = ("up", "down", "left", "right")
SMALLEST_TARGET, LARGEST_TARGET = 8, 131072  # a 4 may be there at the start; a 4 x 4 board holds no more

# A tile is its rank here: 1 for 2, 2 for 4, 3 for 8 ...; 0 is an empty cell. A line is a row or a column, read from
# the side the tiles slide to.


class Game2048(LanguageGame):
    """Slide the tiles of a `board_size` x `board_size` board until one shows `target_tile`.

    Differs from GEM: a budget that cannot suffice is refused. The tiles' sum is at most 8 at the start, every turn
    adds at most 4, and the tile of the winning turn comes too late: `target_tile <= 4 * (max_turns + 1)`. The budgets
    of the registered variants leave room above the 2.2 that a turn adds on average.
    The expert looks one to three moves ahead, averaging over the new tiles; a crowded board can still beat it.
    """

    title = "2048"
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
        if not 3 <= board_size <= 8:
            raise BadValue(f"board_size must lie between 3 and 8, got {board_size!r}")
        if target_tile is not None:
            if target_tile & (target_tile - 1) or not SMALLEST_TARGET <= target_tile <= LARGEST_TARGET:
                raise BadValue(
                    f"target_tile must be a power of two from {SMALLEST_TARGET} to {LARGEST_TARGET}, got {target_tile}"
                )
            if target_tile.bit_length() > board_size**2 + 2:
                raise BadValue(
                    f"{target_tile} does not fit a board of {board_size} x {board_size}; choose a larger one"
                )
            if max_turns is not None and target_tile > 4 * (max_turns + 1):
                raise BadValue(
                    f"{target_tile} cannot be reached in {max_turns} turns, as a turn adds 4 at most; "
                    f"max_turns must be at least {target_tile // 4 - 1}, and twice that to be fair"
                )
        super().__init__({"target_tile": target_tile, "max_turns": max_turns, "board_size": board_size}, **options)

    def setup(self) -> None:
        self.cells = [0] * self.board_size**2  # row by row
        self.goal = self.target_tile.bit_length() - 1
        self._add_tile()
        self._add_tile()
        self.first_best = max(self.cells)

    def _add_tile(self) -> int:
        """Put a 2 or a 4 on an empty cell; the number of cells that stay empty."""
        empty = [i for i, rank in enumerate(self.cells) if not rank]
        self.cells[self.rng.choice(empty)] = self.newest = 1 if self.rng.random() < 0.9 else 2
        return len(empty) - 1

    def rules(self) -> str:
        return (
            f"The board has {self.board_size} x {self.board_size} cells; a number is a tile and a dot an empty cell. "
            f"Make a tile that shows {self.target_tile}.\n"
            "A move is one of up, down, left, right. It slides all tiles that way as far as they go. Two equal tiles "
            "that meet merge into one of twice the number, beginning at the side they slide to; a merged tile does not "
            "merge again in the same move.\n"
            "After every move a 2 (9 times in 10) or a 4 appears on a random empty cell. A move that would change "
            "nothing is refused and costs a turn. When no move changes anything, the game is lost."
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
            after = _slid(before)
            if after != before:
                cells[line] = after
                moved = True
        if not moved:
            return INVALID, f"nothing changes when you slide {move}. Choose another direction."
        if max(cells) >= self.goal:
            return WON, f"you slid {move} and made {self.target_tile}. You win!"
        if not self._add_tile() and not self._movable():
            return LOST, f"you slid {move}, a {2**self.newest} appeared, and no move is left. You lose."
        return ONGOING, f"you slid {move}, and a {2**self.newest} appeared."

    def _movable(self) -> list[str]:
        """The directions that change something."""
        cells = self.cells
        return [
            way
            for way, lines in _lines(self.board_size).items()
            if any(_slid(line) != line for line in [tuple(cells[where]) for where in lines])
        ]

    def board(self) -> str:
        size, cells = self.board_size, self.cells
        width = max(4, len(str(self.target_tile)))
        return "\n".join([_row_text(tuple(cells[i : i + size]), width) for i in range(0, len(cells), size)])

    def solution(self) -> str:
        return f"The largest tile was {2 ** max(self.cells)}, the target {self.target_tile}."

    def progress(self) -> float:
        return (max(self.cells) - self.first_best) / (self.goal - self.first_best)

    def random_move(self) -> str:
        return self.player_rng.choice(self._movable() or DIRECTIONS)

    def expert_move(self) -> str:
        return _expert(self.board_size, self.goal).direction(self.cells)


@lru_cache(maxsize=8)
def _lines(size: int) -> dict[str, tuple[slice, ...]]:
    """By direction: where the lines lie in the flat board."""
    cells, line = size * size, range(size)
    return {
        "up": tuple(slice(i, None, size) for i in line),
        "down": tuple(slice(cells - size + i, None, -size) for i in line),
        "left": tuple(slice(i * size, (i + 1) * size) for i in line),
        "right": tuple(slice((i + 1) * size - 1, i * size - 1 if i else None, -1) for i in line),
    }


@lru_cache(maxsize=1 << 16)
def _slid(line: tuple[int, ...]) -> tuple[int, ...]:
    """The line after its tiles slid to its beginning."""
    slid: list[int] = []
    last = 0  # what the next tile may merge with
    for rank in filter(None, line):
        if rank == last:
            slid[-1] += 1
            last = 0
        else:
            slid.append(rank)
            last = rank
    return (*slid, *[0] * (len(line) - len(slid)))


@lru_cache(maxsize=1 << 16)
def _row_text(row: tuple[int, ...], width: int) -> str:
    return " ".join((str(2**rank) if rank else ".").rjust(width) for rank in row)


# The expert. A board is two ints of RANK bits a cell: row by row, and column by column. Its value is the same when the
# two are swapped, so below the first move nobody minds which is which.

RANK = 5
EMPTY, PAIR, UNORDERED, UNMERGED = 400, 750, 18, 10  # what makes a line's worth; tuned by playing for 2048
WIN, DEAD = 400_000, -1_600_000

# For sliding to the line's beginning: the slid line, its worth, its cells spread out, one to each crossing line. The
# same for sliding to its end. Last, the worth of the line as it is.
_Line = tuple[int, int, int, int, int, int, int]


class _Lines(dict[int, _Line]):
    """What there is to know about a line, worked out when first asked for."""

    def __init__(self, size: int, goal: int) -> None:
        super().__init__()
        self.size = size
        self.goal = goal

    def __missing__(self, packed: int) -> _Line:
        if len(self) > 100_000:  # only boards larger than 4 x 4 have so many
            self.clear()
        line = tuple([packed >> RANK * i & 31 for i in range(self.size)])
        about = self[packed] = (*self._about(_slid(line)), *self._about(_slid(line[::-1])[::-1]), self._worth(line))
        return about

    def _about(self, line: tuple[int, ...]) -> tuple[int, int, int]:
        return _packed(line, RANK), self._worth(line), _packed(line, RANK * self.size)

    def _worth(self, line: tuple[int, ...]) -> int:
        """Room and pairs count for a line; tiles that do not rise to one side, and large tiles not merged, against."""
        if max(line) >= self.goal:
            return WIN // 2  # the crossing line has the other half
        tiles = [rank for rank in line if rank]
        pairs = sum([a == b for a, b in pairwise(tiles)])
        cubes = [rank**3 for rank in line]
        rise = sum([b - a for a, b in pairwise(cubes) if b > a])
        fall = rise + cubes[0] - cubes[-1]
        return EMPTY * line.count(0) + PAIR * pairs - UNORDERED * min(rise, fall) - UNMERGED * sum(cubes)


def _packed(line: Sequence[int], bits: int) -> int:
    return sum([rank << bits * i for i, rank in enumerate(line)])


class _Expert:
    """Expectimax: the best move, averaged over the tiles that may come, and so on for some layers of new tiles."""

    def __init__(self, size: int, goal: int) -> None:
        self.size = size
        self.goal = goal
        self.lines = _Lines(size, goal)
        self.shifts = [RANK * size * i for i in range(size)]
        self.mask = (1 << RANK * size) - 1
        # Where a cell is in the one int, and in the other.
        self.spots = [(RANK * (i * size + j), RANK * (j * size + i)) for i in range(size) for j in range(size)]

    def direction(self, cells: Sequence[int]) -> str:
        rows = _packed(cells, RANK)
        cols = _packed([rank for i in range(self.size) for rank in cells[i :: self.size]], RANK)
        layers = self._layers(cells)
        known: dict[tuple[int, int], float] = {}
        best, choice = -math.inf, "left"
        for ways, one, other in ((("left", "right"), rows, cols), (("up", "down"), cols, rows)):
            for way, (slid, worth, crossing) in zip(ways, self._slides(one), strict=True):
                if crossing != other:
                    won = worth > WIN // 4
                    value = math.inf if won else self._average(slid, crossing, layers, 0.1, known)
                    if value > best:
                        best, choice = value, way
        return choice

    def _layers(self, cells: Sequence[int]) -> int:
        """How far to look: the fewer cells are empty, the fewer tiles can come and the more depends on them."""
        room = cells.count(0)
        if room > 16:  # on larger boards only
            return 0
        if sum([1 << rank for rank in cells if rank]) < 1 << self.goal:
            return 1 + (room < 5) + (room < 2)
        return 1 + (room < 9) + (room < 4)  # the tiles suffice for the target: bring them together before time is up

    def _slides(self, board: int) -> list[tuple[int, int, int]]:
        """For both directions along the board's lines: the slid board, the worth of its lines, its crossing lines."""
        lines = [self.lines[board >> shift & self.mask] for shift in self.shifts]
        return [
            (
                sum([line[k] << shift for line, shift in zip(lines, self.shifts, strict=True)]),
                sum([line[k + 1] for line in lines]),
                sum([line[k + 2] << RANK * i for i, line in enumerate(lines)]),
            )
            for k in (0, 3)
        ]

    def _average(self, one: int, other: int, layers: int, fours: float, known: dict[tuple[int, int], float]) -> float:
        """The value of a board on which a tile will appear, a 4 with probability `fours`."""
        if not layers:
            return sum([self.lines[b >> shift & self.mask][6] for b in (one, other) for shift in self.shifts])
        key = (min(one, other), layers)
        if key in known:
            return known[key]
        total, count = 0.0, 0
        for here, there in self.spots:
            if not one >> here & 31:
                value = self._best(one | 1 << here, other | 1 << there, layers - 1, known)
                if fours:
                    four = self._best(one | 2 << here, other | 2 << there, layers - 1, known)
                    value += fours * (four - value)
                total += value
                count += 1
        known[key] = total / count
        return known[key]

    def _best(self, one: int, other: int, layers: int, known: dict[tuple[int, int], float]) -> float:
        """The value of the best move; below the first layer, a 4 is too rare to look at."""
        if not layers:
            return self._best_worth(one, other)
        best: float = DEAD
        for board, crossed in ((one, other), (other, one)):
            for slid, worth, crossing in self._slides(board):
                if crossing != crossed:
                    if worth > WIN // 4:
                        return WIN * (1 + layers)  # the sooner the better
                    value = self._average(slid, crossing, layers, 0.0, known)
                    if value > best:
                        best = value
        return best

    def _best_worth(self, one: int, other: int) -> int:
        """`_best` without layers: here the time goes."""
        lines, shifts, mask = self.lines, self.shifts, self.mask
        best = DEAD
        for board, crossed in ((one, other), (other, one)):
            to_front = to_back = front = back = i = 0
            for shift in shifts:
                _, front_worth, front_spread, _, back_worth, back_spread, _ = lines[board >> shift & mask]
                to_front += front_worth
                front |= front_spread << i
                to_back += back_worth
                back |= back_spread << i
                i += RANK
            if front != crossed:
                for shift in shifts:
                    to_front += lines[front >> shift & mask][6]
                if to_front > best:
                    best = to_front
            if back != crossed:
                for shift in shifts:
                    to_back += lines[back >> shift & mask][6]
                if to_back > best:
                    best = to_back
        return best


@lru_cache(maxsize=8)
def _expert(size: int, goal: int) -> _Expert:
    return _Expert(size, goal)

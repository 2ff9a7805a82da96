"""The 2048 expert: from a board to the direction to slide.

A tile is its rank: 1 for 2, 2 for 4, 3 for 8 ...; 0 is an empty cell. A line is a row or a column. A board is two ints
of RANK bits a cell: row by row, and column by column. Its value is the same when the two are swapped, so below the
first move nobody minds which is which.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

RANK = 5
EMPTY, PAIR, UNORDERED, UNMERGED = 400, 750, 18, 10  # what makes a line's worth; tuned by playing for 2048
WIN, DEAD = 400_000, -1_600_000  # no board without the target comes near the one, nor a usual one the other
WON = 1 << 40  # in place of a line's worth: it has the target, and no other line can make up for that

# For sliding to the line's beginning: the slid line, its worth, its cells spread out, one to each crossing line. The
# same for sliding to its end. Last, the worth of the line as it is.
_Line = tuple[int, int, int, int, int, int, int]


@lru_cache(maxsize=1 << 16)
def slid(line: tuple[int, ...]) -> tuple[int, ...]:
    """The line after its tiles slid to its beginning."""
    merged: list[int] = []
    last = 0  # what the next tile may merge with
    for rank in filter(None, line):
        if rank == last:
            merged[-1] += 1
            last = 0
        else:
            merged.append(rank)
            last = rank
    return (*merged, *[0] * (len(line) - len(merged)))


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
        about = self[packed] = (*self._about(slid(line)), *self._about(slid(line[::-1])[::-1]), self._worth(line))
        return about

    def _about(self, line: tuple[int, ...]) -> tuple[int, int, int]:
        return _packed(line, RANK), self._worth(line), _packed(line, RANK * self.size)

    def _worth(self, line: tuple[int, ...]) -> int:
        """Room and pairs count for a line; tiles that do not rise to one side, and large tiles not merged, against."""
        if max(line) >= self.goal:
            return WON
        tiles = [rank for rank in line if rank]
        pairs = sum([a == b for a, b in pairwise(tiles)])
        cubes = [rank**3 for rank in line]
        rise = sum([b - a for a, b in pairwise(cubes) if b > a])
        fall = rise + cubes[0] - cubes[-1]
        return EMPTY * line.count(0) + PAIR * pairs - UNORDERED * min(rise, fall) - UNMERGED * sum(cubes)


def _packed(line: Sequence[int], bits: int) -> int:
    return sum([rank << bits * i for i, rank in enumerate(line)])


class Expert:
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
            for way, (moved, worth, crossing) in zip(ways, self._slides(one), strict=True):
                if crossing != other:
                    value = math.inf if worth > WIN else self._average(moved, crossing, layers, 0.1, known)
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
            for moved, worth, crossing in self._slides(board):
                if crossing != crossed:
                    if worth > WIN:
                        return WIN * (1 + layers)  # the sooner the better
                    value = self._average(moved, crossing, layers, 0.0, known)
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
        return min(best, WIN)


@lru_cache(maxsize=8)
def expert(size: int, goal: int) -> Expert:
    return Expert(size, goal)

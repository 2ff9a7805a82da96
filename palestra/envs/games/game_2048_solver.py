"""The 2048 expert, which chooses the direction to slide by expectimax search.

A tile is represented by its rank (1 for 2, 2 for 4, 3 for 8, ...) and an empty cell by 0. A line is a row or a column.
A board is represented by two ints with RANK_BITS bits per cell, one in row order and one in column order. The value of
a board does not change when the two ints are swapped, so the search does not distinguish them after the first move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

RANK_BITS = 5
EMPTY, PAIR, UNORDERED, UNMERGED = 400, 750, 18, 10  # weights for the value of a line, tuned for the target 2048
WIN, DEAD = 400_000, -1_600_000  # values for won and lost boards, which are above and below all usual values
WON = 1 << 40  # value of a line that contains the target; exceeds the sum of any other lines

# The first three values are the result of sliding toward the start of the line: the new line, its value, and its cells
# spread over the crossing lines. The next three are the same values for sliding toward the end of the line. The last
# one is the value of the unchanged line.
_Line = tuple[int, int, int, int, int, int, int]


@lru_cache(maxsize=1 << 16)
def slid(line: tuple[int, ...]) -> tuple[int, ...]:
    """Return the line after sliding its tiles toward its start."""
    merged: list[int] = []
    last = 0  # rank that the next tile may merge with; 0 if none
    for rank in filter(None, line):
        if rank == last:
            merged[-1] += 1
            last = 0
        else:
            merged.append(rank)
            last = rank
    return (*merged, *[0] * (len(line) - len(merged)))


class _Lines(dict[int, _Line]):
    """Cache that maps each packed line to its slid lines and their values, computed on first access."""

    def __init__(self, size: int, goal: int) -> None:
        super().__init__()
        self.size = size
        self.goal = goal

    def __missing__(self, packed: int) -> _Line:
        if len(self) > 100_000:  # happens only on boards larger than 4 x 4
            self.clear()
        line = tuple([packed >> RANK_BITS * i & 31 for i in range(self.size)])
        entry = self[packed] = (
            *self._slid_entry(slid(line)),
            *self._slid_entry(slid(line[::-1])[::-1]),
            self._value(line),
        )
        return entry

    def _slid_entry(self, line: tuple[int, ...]) -> tuple[int, int, int]:
        return _packed(line, RANK_BITS), self._value(line), _packed(line, RANK_BITS * self.size)

    def _value(self, line: tuple[int, ...]) -> int:
        """Return the value of a line, which empty cells and pairs increase and unordered or large tiles decrease."""
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
    """Expectimax player that looks a few moves ahead and averages over the new tiles."""

    def __init__(self, size: int, goal: int) -> None:
        self.size = size
        self.goal = goal
        self.lines = _Lines(size, goal)
        self.shifts = [RANK_BITS * size * i for i in range(size)]
        self.mask = (1 << RANK_BITS * size) - 1
        # Bit offsets of each cell in the two ints that represent a board.
        self.cell_bits = [
            (RANK_BITS * (i * size + j), RANK_BITS * (j * size + i)) for i in range(size) for j in range(size)
        ]

    def direction(self, cells: Sequence[int]) -> str:
        rows = _packed(cells, RANK_BITS)
        cols = _packed([rank for i in range(self.size) for rank in cells[i :: self.size]], RANK_BITS)
        layers = self._layers(cells)
        cache: dict[tuple[int, int], float] = {}
        best, choice = -math.inf, "left"
        for directions, one, other in ((("left", "right"), rows, cols), (("up", "down"), cols, rows)):
            for direction, (moved, value, crossing) in zip(directions, self._slides(one), strict=True):
                if crossing != other:
                    expected = math.inf if value > WIN else self._average(moved, crossing, layers, 0.1, cache)
                    if expected > best:
                        best, choice = expected, direction
        return choice

    def _layers(self, cells: Sequence[int]) -> int:
        """Return the search depth, which is greater if few cells are empty, because there are fewer outcomes."""
        empty = cells.count(0)
        if empty > 16:  # possible only on boards larger than 4 x 4
            return 0
        if sum([1 << rank for rank in cells if rank]) < 1 << self.goal:
            return 1 + (empty < 5) + (empty < 2)
        return 1 + (empty < 9) + (empty < 4)  # the tiles add up to the target, so search deeper

    def _slides(self, board: int) -> list[tuple[int, int, int]]:
        """Return the slid board, the total value of its lines, and its crossing lines, for both directions."""
        lines = [self.lines[board >> shift & self.mask] for shift in self.shifts]
        return [
            (
                sum([line[k] << shift for line, shift in zip(lines, self.shifts, strict=True)]),
                sum([line[k + 1] for line in lines]),
                sum([line[k + 2] << RANK_BITS * i for i, line in enumerate(lines)]),
            )
            for k in (0, 3)
        ]

    def _average(self, one: int, other: int, layers: int, fours: float, cache: dict[tuple[int, int], float]) -> float:
        """Return the expected value of a board after adding a random tile, which is a 4 with probability `fours`."""
        if not layers:
            return sum([self.lines[b >> shift & self.mask][6] for b in (one, other) for shift in self.shifts])
        key = (min(one, other), layers)
        if key in cache:
            return cache[key]
        total, count = 0.0, 0
        for row_bit, column_bit in self.cell_bits:
            if not one >> row_bit & 31:
                value = self._best(one | 1 << row_bit, other | 1 << column_bit, layers - 1, cache)
                if fours:
                    four = self._best(one | 2 << row_bit, other | 2 << column_bit, layers - 1, cache)
                    value += fours * (four - value)
                total += value
                count += 1
        cache[key] = total / count
        return cache[key]

    def _best(self, one: int, other: int, layers: int, cache: dict[tuple[int, int], float]) -> float:
        """Return the value of the best move; beyond the first layer, new 4s are ignored because they are rare."""
        if not layers:
            return self._best_value(one, other)
        best: float = DEAD
        for board, crossed in ((one, other), (other, one)):
            for moved, line_value, crossing in self._slides(board):
                if crossing != crossed:
                    if line_value > WIN:
                        return WIN * (1 + layers)  # prefer early wins
                    value = self._average(moved, crossing, layers, 0.0, cache)
                    if value > best:
                        best = value
        return best

    def _best_value(self, one: int, other: int) -> int:
        """Return the value of the best move in the last layer; most of the time is spent in this loop."""
        lines, shifts, mask = self.lines, self.shifts, self.mask
        best = DEAD
        for board, crossed in ((one, other), (other, one)):
            to_front = to_back = front = back = i = 0
            for shift in shifts:
                _, front_value, front_spread, _, back_value, back_spread, _ = lines[board >> shift & mask]
                to_front += front_value
                front |= front_spread << i
                to_back += back_value
                back |= back_spread << i
                i += RANK_BITS
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

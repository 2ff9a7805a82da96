"""The Fifteen Puzzle and its smaller and larger kin: slide the tiles of a square board into order."""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush
from operator import eq
from typing import Unpack

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.errors import BadValue

LARGEST = 10  # rows; every tile number still has two digits
GAP = "__"

# How many moves a board is scrambled by: as hard as the budgets of the registered variants allow, and no harder than
# what the expert can search. Two rows have no board more than six moves away.
SCRAMBLES = {2: (2, 6), 3: (12, 20)}
SCRAMBLE = (24, 36)
MOST_RETURNS = 3  # moves of a scramble that may bring a tile nearer to its home

SEARCHES = ((1, 48_000), (2, 10_000), (6, 10_000))  # weight of the estimate (1: shortest way), lines to look at

_FAULTS = {
    "up": "the gap is in the bottom row, so there is no tile below it to move up.",
    "down": "the gap is in the top row, so there is no tile above it to move down.",
    "left": "the gap is in the last column, so there is no tile right of it to move left.",
    "right": "the gap is in the first column, so there is no tile left of it to move right.",
}

_WORDS = {move[0]: move for move in _FAULTS}


class FifteenPuzzle(LanguageGame):
    """A board of `num_rows` rows and columns with one gap; a move names the way that a tile slides into the gap.

    Differs from GEM: a board is order scrambled by at most `max_turns` moves, so every one can be solved in time (half
    of GEM's cannot be solved at all); 2 x 2 boards by 2 to 6 moves, 3 x 3 by 12 to 20, larger ones by 24 to 36.
    The expert plays a shortest plan, found from the board.
    """

    title = "the Fifteen Puzzle"
    levels = (
        {"num_rows": 2, "max_turns": 10},
        {"num_rows": 3, "max_turns": 20},
        {"num_rows": 4, "max_turns": 50},
    )
    shared = LanguageGame.shared | {"_plan"}

    num_rows: int
    max_turns: int

    def __init__(self, *, num_rows: int | None = 2, max_turns: int | None = 20, **options: Unpack[GameOptions]) -> None:
        if num_rows is not None and not (isinstance(num_rows, int) and 2 <= num_rows <= LARGEST):
            raise BadValue(f"num_rows is a whole number from 2 to {LARGEST}, got {num_rows!r}")
        super().__init__({"num_rows": num_rows, "max_turns": max_turns}, **options)

    def setup(self) -> None:
        size = self.num_rows
        least, most = SCRAMBLES.get(size, SCRAMBLE)
        length = self.rng.randint(min(least, self.max_turns), min(most, self.max_turns))
        tiles = self._scramble(length)
        while tiles is None:
            tiles = self._scramble(length)
        self.grid = _show(tiles, size)  # what the player sees, and all there is
        self._placed = self._count_placed()
        self._plan: dict[str, str] = {}  # board -> the expert's move, along its last plan; replaced, never changed

    def _scramble(self, length: int) -> list[int] | None:
        """The tiles after a random walk from order that seldom turns towards home, or None where it got stuck.

        Such a walk is hardly longer than the shortest plan. Without a step straight back, no walk of less than twelve
        moves leads home again, and a longer one leaves a distance of at least its length - 2 * MOST_RETURNS.
        """
        size = self.num_rows
        neighbours = _neighbours(size)
        tiles = [*range(1, size * size), 0]
        gap = last = size * size - 1
        returns = 0
        for _ in range(length):
            away: list[int] = []
            nearer: list[int] = []
            for cell in neighbours[gap].values():
                if cell != last:
                    home = tiles[cell] - 1
                    (away if _distance(home, gap, size) > _distance(home, cell, size) else nearer).append(cell)
            options = away + nearer if returns < MOST_RETURNS else away
            if not options:
                return None
            cell = self.rng.choice(options)
            returns += cell in nearer
            tiles[gap], tiles[cell] = tiles[cell], 0
            gap, last = cell, gap
        return tiles

    def rules(self) -> str:
        tiles = self.num_rows**2 - 1
        return (
            f"The board has {self.num_rows} rows and {self.num_rows} columns with the tiles 1 to {tiles} and one gap, "
            f"shown as {GAP}. Put the tiles in order: row by row from the top, left to right, 1 to {tiles}, with the "
            "gap in the bottom-right corner.\n"
            "A move slides one tile into the gap and is one of these words:\n"
            "up: the tile below the gap moves up\n"
            "down: the tile above the gap moves down\n"
            "left: the tile to the right of the gap moves left\n"
            "right: the tile to the left of the gap moves right\n"
            "A move for which there is no such tile costs a turn and changes nothing."
        )

    def example_move(self) -> str:
        return "up"

    def parse(self, text: str) -> str | None:
        if text in _FAULTS:
            return text
        text = text.strip(" \t\r\n'\"`.,[]()").lower()
        return text if text in _FAULTS else None

    def play(self, move: str) -> tuple[int, str]:
        grid = self.grid
        gap = grid.index(GAP) // 3
        cell = _neighbours(self.num_rows)[gap].get(move)
        if cell is None:
            return INVALID, _FAULTS[move]
        self.grid = _slide(grid, gap, cell)
        if self.grid == _solved(self.num_rows):
            return WON, "all tiles are in order. You win!"
        return ONGOING, f"tile {grid[3 * cell : 3 * cell + 2].lstrip()} moved {move}."

    def board(self) -> str:
        return self.grid

    def progress(self) -> float:
        return max(0.0, (self._count_placed() - self._placed) / (self.num_rows**2 - self._placed))

    def _count_placed(self) -> int:
        return sum(map(eq, self.grid.split(), _solved(self.num_rows).split()))

    def random_move(self) -> str:
        return self.player_rng.choice(list(_neighbours(self.num_rows)[self.grid.index(GAP) // 3]))

    def expert_move(self) -> str:
        move = self._plan.get(self.grid)
        if move is None:
            self._plan = _make_plan(self.grid, self.num_rows)
            move = self._plan.get(self.grid, "down")  # "down": in order, so the game is over
        return move


def _show(tiles: list[int], size: int) -> str:
    """The board as text: the cell with index i stands at 3 * i."""
    words = [f"{tile:2}" if tile else GAP for tile in tiles]
    return "\n".join(" ".join(words[row : row + size]) for row in range(0, size * size, size))


def _slide(grid: str, gap: int, cell: int) -> str:
    low, high = (3 * gap, 3 * cell) if gap < cell else (3 * cell, 3 * gap)
    return grid[:low] + grid[high : high + 2] + grid[low + 2 : high] + grid[low : low + 2] + grid[high + 2 :]


def _distance(a: int, b: int, size: int) -> int:
    return abs(a // size - b // size) + abs(a % size - b % size)


@lru_cache
def _solved(size: int) -> str:
    return _show([*range(1, size * size), 0], size)


@lru_cache
def _neighbours(size: int) -> list[dict[str, int]]:
    """For every place of the gap: move -> the cell whose tile it slides."""
    return [
        {
            move: gap + shift
            for move, shift, fits in (
                ("up", size, gap < size * (size - 1)),
                ("down", -size, gap >= size),
                ("left", 1, gap % size < size - 1),
                ("right", -1, gap % size > 0),
            )
            if fits
        }
        for gap in range(size * size)
    ]


def _make_plan(grid: str, size: int) -> dict[str, str]:
    """Board -> move from here to order: along a shortest way where the search is quick enough to find one.

    Of all shortest ways it is the alphabetically first, so a plan made later on the way is the rest of this one, and
    the expert's move depends on the board alone. Far from order, the plan may be longer, or only lead nearer to it.
    """
    tiles = bytes(0 if word == GAP else int(word) for word in grid.split())
    way = ""
    for weight, lines in SEARCHES:
        solved, way = _search(tiles, size, weight, lines // size)
        if solved:
            break
    plan = {}
    for letter in way:
        gap = grid.index(GAP) // 3
        move = plan[grid] = _WORDS[letter]
        grid = _slide(grid, gap, _neighbours(size)[gap][move])
    return plan


def _search(start: bytes, size: int, weight: int, limit: int) -> tuple[bool, str]:
    """A*: True and the way to order (initials of moves), or False and the way to the nearest of `limit` boards."""
    neighbours = [[(move[0], cell) for move, cell in options.items()] for options in _neighbours(size)]
    lines = range(size)
    estimate = sum(_line_cost(size, True, r, start[r * size : r * size + size]) for r in lines)
    estimate += sum(_line_cost(size, False, c, start[c::size]) for c in lines)
    nearest = (size**4, "")
    queue = [(weight * estimate, "", start, estimate)]
    cost = {start: 0}
    done: set[bytes] = set()
    while queue and len(done) < limit:
        _, way, board, estimate = heappop(queue)  # ties go to the alphabetically first way
        if estimate == 0:
            return True, way
        if board in done:
            continue
        done.add(board)
        if way and estimate < nearest[0]:
            nearest = (estimate, way)
        length = len(way) + 1
        gap = board.index(0)
        for letter, cell in neighbours[gap]:
            low, high = (gap, cell) if gap < cell else (cell, gap)
            after = board[:low] + board[high : high + 1] + board[low + 1 : high] + board[low : low + 1]
            after += board[high + 1 :]
            if after in done or cost.get(after, length) < length:
                continue
            cost[after] = length
            left = estimate
            if high - low == 1:  # two columns change
                low, high = low % size, high % size
                left += _line_cost(size, False, low, after[low::size]) - _line_cost(size, False, low, board[low::size])
                left += _line_cost(size, False, high, after[high::size])
                left -= _line_cost(size, False, high, board[high::size])
            else:  # two rows, one below the other
                low -= low % size
                mid, end = low + size, low + 2 * size
                row = low // size
                left += _line_cost(size, True, row, after[low:mid]) - _line_cost(size, True, row, board[low:mid])
                left += _line_cost(size, True, row + 1, after[mid:end])
                left -= _line_cost(size, True, row + 1, board[mid:end])
            heappush(queue, (length + weight * left, way + letter, after, left))
    return False, nearest[1]


@lru_cache(maxsize=1 << 17)
def _line_cost(size: int, is_row: bool, at: int, line: bytes) -> int:
    """Moves that the tiles of one row (column) need at least, up and down (left and right).

    Every tile's distance to its own row, and two for each tile that has to leave its own row to let another pass.
    """
    homes = [divmod(tile - 1, size) for tile in line if tile]
    if not is_row:
        homes = [(across, along) for along, across in homes]
    order = [along for across, along in homes if across == at]
    in_order: list[int] = []  # the longest run in order that ends with each tile
    for i, along in enumerate(order):
        in_order.append(1 + max((in_order[j] for j in range(i) if order[j] < along), default=0))
    return sum(abs(across - at) for across, _ in homes) + 2 * (len(order) - max(in_order, default=0))

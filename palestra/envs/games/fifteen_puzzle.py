"""The Fifteen Puzzle, in sizes from 2 x 2 to 10 x 10: slide the tiles into order."""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush
from operator import eq
from typing import Unpack

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.errors import BadValue

LARGEST = 10  # maximum rows; every tile number has at most two digits
GAP = "__"

# Number of scrambling moves (min, max) by number of rows: as many as the budgets of the registered variants and the
# expert's search allow. With two rows, no board is more than six moves from the solution.
SCRAMBLES = {2: (2, 6), 3: (12, 20)}
SCRAMBLE = (24, 36)  # for all larger boards
MAX_RETURNS = 3  # moves of a scramble that may bring a tile closer to its target cell

SEARCHES = ((1, 48_000), (2, 10_000), (6, 10_000))  # A* heuristic weight (1: shortest plan), lines to examine

_REJECTIONS = {
    "up": "the gap is in the bottom row, so there is no tile below it to move up.",
    "down": "the gap is in the top row, so there is no tile above it to move down.",
    "left": "the gap is in the last column, so there is no tile to the right of it to move left.",
    "right": "the gap is in the first column, so there is no tile to the left of it to move right.",
}

_WORDS = {move[0]: move for move in _REJECTIONS}


class FifteenPuzzle(LanguageGame):
    """A board of `num_rows` rows and columns with one gap; a move is the direction in which a tile slides into it.

    Differences from GEM: a board is the solved board scrambled by at most `max_turns` moves, so that every board can be
    solved in time (half of GEM's cannot be solved at all): 2 to 6 moves for 2 x 2 boards, 12 to 20 for 3 x 3, 24 to 36
    for larger ones. The expert searches for a shortest plan from the visible board.
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
            raise BadValue(f"num_rows must be a whole number from 2 to {LARGEST}, got {num_rows!r}")
        super().__init__({"num_rows": num_rows, "max_turns": max_turns}, **options)

    def setup(self) -> None:
        size = self.num_rows
        shortest, longest = SCRAMBLES.get(size, SCRAMBLE)
        length = self.rng.randint(min(shortest, self.max_turns), min(longest, self.max_turns))
        tiles = self._scramble(length)
        while tiles is None:
            tiles = self._scramble(length)
        self.grid = _format(tiles, size)  # the complete state, fully visible to the player
        self._placed_at_start = self._count_placed()
        self._plan: dict[str, str] = {}  # board -> the expert's next move; replaced, never mutated, as forks share it

    def _scramble(self, length: int) -> list[int] | None:
        """Return the tiles after a random walk that mostly moves tiles away from their targets; None if it gets stuck.

        Such a walk is hardly longer than the shortest solution: without immediate reversals, no walk of fewer than
        twelve moves returns to the start, and a longer one ends at a distance of at least its length - 2 * MAX_RETURNS.
        """
        size = self.num_rows
        neighbours = _neighbours(size)
        tiles = [*range(1, size * size), 0]
        gap = last = size * size - 1
        returns = 0
        for _ in range(length):
            away: list[int] = []
            closer: list[int] = []
            for cell in neighbours[gap].values():
                if cell != last:
                    home = tiles[cell] - 1
                    (away if _distance(home, gap, size) > _distance(home, cell, size) else closer).append(cell)
            options = away + closer if returns < MAX_RETURNS else away
            if not options:
                return None
            cell = self.rng.choice(options)
            returns += cell in closer
            tiles[gap], tiles[cell] = tiles[cell], 0
            gap, last = cell, gap
        return tiles

    def rules(self) -> str:
        tiles = self.num_rows**2 - 1
        return (
            f"The board has {self.num_rows} rows and {self.num_rows} columns with the tiles 1 to {tiles} and one gap, "
            f"shown as {GAP}. Put the tiles in order: row by row from the top, left to right, 1 to {tiles}, with the "
            "gap in the bottom-right corner.\n"
            "A move slides one tile into the gap. It is one of these words:\n"
            "up: the tile below the gap moves up\n"
            "down: the tile above the gap moves down\n"
            "left: the tile to the right of the gap moves left\n"
            "right: the tile to the left of the gap moves right\n"
            "If there is no such tile, the move costs a turn and changes nothing."
        )

    def example_move(self) -> str:
        return "up"

    def parse(self, text: str) -> str | None:
        if text in _REJECTIONS:
            return text
        text = text.strip(" \t\r\n'\"`.,[]()").lower()
        return text if text in _REJECTIONS else None

    def play(self, move: str) -> tuple[int, str]:
        grid = self.grid
        gap = grid.index(GAP) // 3
        cell = _neighbours(self.num_rows)[gap].get(move)
        if cell is None:
            return INVALID, _REJECTIONS[move]
        self.grid = _slide(grid, gap, cell)
        if self.grid == _solved(self.num_rows):
            return WON, "all tiles are in order. You win!"
        return ONGOING, f"tile {grid[3 * cell : 3 * cell + 2].lstrip()} moved {move}."

    def board(self) -> str:
        return self.grid

    def progress(self) -> float:
        return max(0.0, (self._count_placed() - self._placed_at_start) / (self.num_rows**2 - self._placed_at_start))

    def _count_placed(self) -> int:
        return sum(map(eq, self.grid.split(), _solved(self.num_rows).split()))

    def random_move(self) -> str:
        return self.player_rng.choice(list(_neighbours(self.num_rows)[self.grid.index(GAP) // 3]))

    def expert_move(self) -> str:
        move = self._plan.get(self.grid)
        if move is None:
            self._plan = _make_plan(self.grid, self.num_rows)
            move = self._plan.get(self.grid, "down")  # "down": already solved, so the game is over
        return move


def _format(tiles: list[int], size: int) -> str:
    """Return the board as text; the cell with index i starts at character 3 * i."""
    words = [f"{tile:2}" if tile else GAP for tile in tiles]
    return "\n".join(" ".join(words[row : row + size]) for row in range(0, size * size, size))


def _slide(grid: str, gap: int, cell: int) -> str:
    low, high = (3 * gap, 3 * cell) if gap < cell else (3 * cell, 3 * gap)
    return grid[:low] + grid[high : high + 2] + grid[low + 2 : high] + grid[low : low + 2] + grid[high + 2 :]


def _distance(a: int, b: int, size: int) -> int:
    return abs(a // size - b // size) + abs(a % size - b % size)


@lru_cache
def _solved(size: int) -> str:
    return _format([*range(1, size * size), 0], size)


@lru_cache
def _neighbours(size: int) -> list[dict[str, int]]:
    """Return, for every position of the gap, {move: cell whose tile it slides}."""
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
    """Return {board: move} along a path to the solution, a shortest one if the search finds it within its limits.

    Ties are broken alphabetically, so that a plan computed later on the path is the remainder of this one and the
    expert's move depends on the board alone. Far from the solution, the plan may be longer, or only lead closer to it.
    """
    tiles = bytes(0 if word == GAP else int(word) for word in grid.split())
    path = ""
    for weight, lines in SEARCHES:
        solved, path = _search(tiles, size, weight, lines // size)
        if solved:
            break
    plan = {}
    for letter in path:
        gap = grid.index(GAP) // 3
        move = plan[grid] = _WORDS[letter]
        grid = _slide(grid, gap, _neighbours(size)[gap][move])
    return plan


def _search(start: bytes, size: int, weight: int, limit: int) -> tuple[bool, str]:
    """Run weighted A* over at most `limit` boards; return whether it solved the board, and the path.

    The path consists of the initials of the moves; without a solution, it leads to the closest board found.
    """
    neighbours = [[(move[0], cell) for move, cell in options.items()] for options in _neighbours(size)]
    lines = range(size)
    estimate = sum(_line_cost(size, True, r, start[r * size : r * size + size]) for r in lines)
    estimate += sum(_line_cost(size, False, c, start[c::size]) for c in lines)
    closest = (size**4, "")
    queue = [(weight * estimate, "", start, estimate)]
    cost = {start: 0}
    done: set[bytes] = set()
    while queue and len(done) < limit:
        _, path, board, estimate = heappop(queue)  # ties go to the alphabetically first path
        if estimate == 0:
            return True, path
        if board in done:
            continue
        done.add(board)
        if path and estimate < closest[0]:
            closest = (estimate, path)
        length = len(path) + 1
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
            heappush(queue, (length + weight * left, path + letter, after, left))
    return False, closest[1]


@lru_cache(maxsize=1 << 17)
def _line_cost(size: int, is_row: bool, at: int, line: bytes) -> int:
    """Return a lower bound on the vertical (horizontal) moves of the tiles in one row (column).

    The distance of every tile to its target row, plus two for each tile that must leave its row to let another pass.
    """
    homes = [divmod(tile - 1, size) for tile in line if tile]
    if not is_row:
        homes = [(across, along) for along, across in homes]
    order = [along for across, along in homes if across == at]
    in_order: list[int] = []  # length of the longest increasing subsequence that ends with each tile
    for i, along in enumerate(order):
        in_order.append(1 + max((in_order[j] for j in range(i) if order[j] < along), default=0))
    return sum(abs(across - at) for across, _ in homes) + 2 * (len(order) - max(in_order, default=0))

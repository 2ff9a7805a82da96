"""The Minesweeper expert, which chooses the next cell to reveal from the visible board.

A set of cells is an int with one bit per cell. A clue (cells, count) states that `count` of these cells are mines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

Clue = tuple[int, int]

MAX_STATES = 20_000  # maximum number of states for counting boards exactly; beyond it, risks are estimated
MAX_BITS = 40_000_000  # maximum total size of all weights in bits; limits memory on very large boards
MAX_PLAYED_BOARDS = 300  # with at most this many consistent boards, the expert searches to the end of the game
MAX_POSITIONS = 1000  # maximum number of positions in that search
CANDIDATES = 8  # number of cells for which the expert looks one more reveal ahead


class _LimitExceeded(Exception):
    """Raised if a search exceeds its limits."""


def best_cell(view: Sequence[str], rows: int, cols: int, num_mines: int) -> int:
    """Return the cell to reveal; in `view`, digits are revealed cells, and all other symbols are hidden cells."""
    unknown = sum(1 << cell for cell, seen in enumerate(view) if not seen.isdigit())
    if unknown.bit_count() == rows * cols:
        # In measurements, the best first cell was the center on boards up to size 7, and a cell two steps from the
        # corner on larger boards.
        row, col = ((size - 1) // 2 if size < 8 else 2 for size in (rows, cols))
        return row * cols + col
    around = _around(rows, cols)
    numbers = {around[cell] & unknown: int(seen) for cell, seen in enumerate(view) if seen.isdigit()}
    safe, mines, clues = _deduce(numbers)
    unknown &= ~mines
    left = num_mines - mines.bit_count()
    if not safe and not left:
        safe = unknown
    if safe:
        return next(_cells(safe))
    try:
        odds = _Odds(unknown, clues, left, rows * cols + 1)
    except _LimitExceeded:
        return _least_estimate(unknown, clues, left)
    lowest_risk = min(odds.risk.values())
    close = [cell for cell in sorted(odds.risk) if odds.risk[cell] <= lowest_risk + odds.total * 0.05]
    close.sort(key=odds.risk.__getitem__)
    if not lowest_risk:
        return close[0]
    try:
        if odds.total <= MAX_PLAYED_BOARDS:
            return _play_out(odds.boards(), unknown, mines, around)
        if len(close) > 1 and odds.states <= 500 and len(odds.risk) <= 64:  # these bounds keep the lookahead fast
            survivors = [_two_reveals(cell, odds, clues, around[cell]) for cell in close[:CANDIDATES]]
            return close[survivors.index(max(survivors))]
    except _LimitExceeded:
        pass
    return close[0]


@lru_cache(maxsize=64)
def neighbours(rows: int, cols: int) -> tuple[tuple[int, ...], ...]:
    """Return the neighbors of every cell; cells are numbered row by row."""
    return tuple(
        tuple(
            y * cols + x
            for y in range(max(0, row - 1), min(rows, row + 2))
            for x in range(max(0, col - 1), min(cols, col + 2))
            if (y, x) != (row, col)
        )
        for row in range(rows)
        for col in range(cols)
    )


@lru_cache(maxsize=64)
def _around(rows: int, cols: int) -> list[int]:
    return [sum(1 << cell for cell in cells) for cells in neighbours(rows, cols)]


def _cells(cells: int) -> Iterator[int]:
    while cells:
        low = cells & -cells
        yield low.bit_length() - 1
        cells ^= low


def _deduce(clues: dict[int, int]) -> tuple[int, int, list[Clue]]:
    """Return the cells that are certainly free, the cells that are certainly mines, and the clues about all others.

    The deduction uses single clues, and pairs of clues in which one clue's cells are a subset of the other's.
    """
    safe = mines = 0
    while True:
        before = mines
        open_clues: dict[int, int] = {}
        for cells, count in clues.items():
            count -= (cells & mines).bit_count()
            cells &= ~mines
            if not count:
                safe |= cells
            elif count == cells.bit_count():
                mines |= cells
            else:
                open_clues[cells] = count
        if safe:
            return safe, mines, []
        if mines != before:
            clues = open_clues
            continue
        parts = {
            whole ^ part: open_clues[whole] - open_clues[part]
            for part in open_clues
            for whole in open_clues
            if part != whole and part & whole == part and whole ^ part not in open_clues
        }
        if not parts:
            return 0, mines, list(open_clues.items())
        clues = open_clues | parts


def _least_estimate(unknown: int, clues: list[Clue], left: int) -> int:
    """Return the cell with the lowest estimated risk.

    A cell's risk is the highest mine density among its clues, or the overall mine density if it has no clue.
    """
    risk = dict.fromkeys(_cells(unknown), left / unknown.bit_count())
    covered = 0
    for cells, count in clues:
        share = count / cells.bit_count()
        for cell in _cells(cells):
            risk[cell] = max(risk[cell], share) if covered >> cell & 1 else share
        covered |= cells
    return min(risk, key=risk.__getitem__)


class _Odds:
    """Number of boards that satisfy all clues (`total`), and the number in which a given cell is a mine (`risk`).

    The boards are counted by deciding cells one by one. A state is an int with four bits per clue: the number of mines
    that the clue still needs. Equal states are merged. The weight of a state is a polynomial whose k-th coefficient is
    the number of its boards with k mines. It is packed into an int with `width` bits per coefficient, so that
    multiplying ints multiplies polynomials.
    """

    def __init__(self, unknown: int, clues: list[Clue], left: int, width: int) -> None:
        self.unknown = unknown
        self.left = left  # number of mines that are not located yet
        self.width = width
        self.order = _elimination_order(clues)
        undecided = sum(1 << cell for cell in self.order)
        self.free = list(_cells(unknown & ~undecided))  # cells without a clue
        self.start = sum(count << 4 * i for i, (_, count) in enumerate(clues))
        # For each cell: the state fields for its clues, an int with a 1 in each of these fields, and the combined
        # fields for the clues that contain no later cell.
        self.steps: list[tuple[list[int], int, int]] = []
        for cell in self.order:
            undecided ^= 1 << cell
            containing = [(15 << 4 * i, cells) for i, (cells, _) in enumerate(clues) if cells >> cell & 1]
            fields = [field for field, _ in containing]
            done = sum(field for field, cells in containing if not cells & undecided)
            self.steps.append((fields, sum(field & -field for field in fields), done))
        self._count_back(self._layers())

    def _layers(self) -> list[dict[int, int]]:
        """Return {state: weight of all ways to reach it} before every cell and after the last cell."""
        layers = [{self.start: 1}]
        self.states = 0
        max_states = min(MAX_STATES, MAX_BITS // (self.width * self.left))
        for fields, unit, done in self.steps:
            layer: dict[int, int] = {}
            for state, weight in layers[-1].items():
                if not state & done:
                    layer[state] = layer.get(state, 0) + weight
                if all(map(state.__and__, fields)):
                    state -= unit
                    if not state & done:
                        layer[state] = layer.get(state, 0) + (weight << self.width)
            layers.append(layer)
            self.states += len(layer)
            if self.states > max_states:
                raise _LimitExceeded
        return layers

    def _count_back(self, layers: list[dict[int, int]]) -> None:
        width, free = self.width, len(self.free)
        ends = layers.pop().get(0, 0)
        after = {0: sum(comb(free, k) << width * k for k in range(free + 1))}
        self.total = self._boards_of(ends * after[0], self.left)
        others = sum(comb(free - 1, k) << width * k for k in range(free)) if free else 0
        self.risk = dict.fromkeys(self.free, self._boards_of(ends * others, self.left - 1))
        self.after = [after]  # layers with the weight of each state's continuations
        for cell, (fields, unit, _) in zip(reversed(self.order), reversed(self.steps), strict=True):
            before: dict[int, int] = {}
            mined = 0
            for state, weight in layers.pop().items():
                follow = after.get(state, 0)
                if all(map(state.__and__, fields)) and state - unit in after:
                    with_mine = after[state - unit] << width
                    mined += weight * with_mine
                    follow += with_mine
                if follow:
                    before[state] = follow
            self.risk[cell] = self._boards_of(mined, self.left)
            after = before
            self.after.append(after)
        self.after.reverse()

    def _boards_of(self, weight: int, mines: int) -> int:
        """Return the number of boards in `weight` with exactly `mines` mines."""
        return weight >> self.width * mines & (1 << self.width) - 1 if mines >= 0 else 0

    def boards(self) -> list[int]:
        """Return all consistent boards, each as the set of its mines."""
        partial = [(self.start, 0)]
        for cell, (fields, unit, _), after in zip(self.order, self.steps, self.after[1:], strict=True):
            grown = partial[:]
            grown += [(s - unit, mines | 1 << cell) for s, mines in partial if all(map(s.__and__, fields))]
            partial = [
                (state, mines)
                for state, mines in grown
                if self._boards_of(after.get(state, 0), self.left - mines.bit_count())
            ]
        free = [1 << cell for cell in self.free]
        return [mines | sum(more) for _, mines in partial for more in combinations(free, self.left - mines.bit_count())]


def _elimination_order(clues: list[Clue]) -> list[int]:
    """Return the cells of all clues in an order that completes clues early, so that few clues are open at a time."""
    order: list[int] = []
    waiting = [cells for cells, _ in clues]
    seen = 0
    while waiting:
        cells = min(waiting, key=lambda cells: (not cells & seen, (cells & ~seen).bit_count()))
        waiting.remove(cells)
        order += _cells(cells & ~seen)
        seen |= cells
    return order


def _two_reveals(cell: int, odds: _Odds, clues: list[Clue], around: int) -> int:
    """Return the number of boards on which revealing `cell` and then the best next cell hits no mine."""
    rest = odds.unknown & ~(1 << cell)
    neighbours_left = rest & around
    others = [(cells & ~(1 << cell), count) for cells, count in clues]
    survived = 0
    for number in range(neighbours_left.bit_count() + 1):
        then = _Odds(rest, [*others, (neighbours_left, number)] if neighbours_left else others, odds.left, odds.width)
        if then.total:
            survived += then.total - min(then.risk.values())
    return survived


def _play_out(boards: list[int], unknown: int, mines: int, around: list[int]) -> int:
    """Return the cell whose reveal wins on the most boards if all later moves are optimal.

    A position is the set of boards that are still consistent, stored as an int with one bit per board.
    """
    # For each cell, the boards on which it is free, and the same boards grouped by the cell's mine count.
    moves: list[tuple[int, int, list[int]]] = []
    for cell in _cells(unknown):
        by_number: dict[int, int] = {}
        for i, board in enumerate(boards):
            if not board >> cell & 1:
                number = ((board | mines) & around[cell]).bit_count()
                by_number[number] = by_number.get(number, 0) | 1 << i
        moves.append((cell, sum(by_number.values()), list(by_number.values())))
    cache: dict[int, tuple[int, int]] = {}

    def best(position: int) -> tuple[int, int]:
        """Return the number of boards that can be won, and the cell to reveal."""
        if position in cache:
            return cache[position]
        if len(cache) > MAX_POSITIONS:
            raise _LimitExceeded
        options = []
        for cell, free, parts in moves:
            alive = position & free
            if alive != position:
                options.append((-alive.bit_count(), cell, parts))
            elif all(position & part != position for part in parts):  # safe and informative, so optimal
                options = [(-alive.bit_count(), cell, parts)]
                break
        won, choice = -1, -1
        for at_most, cell, parts in sorted(options):
            if -at_most <= won:
                break
            wins = 0
            for part in parts:
                alive = position & part
                # If only one board remains, it is won.
                wins += best(alive)[0] if alive & (alive - 1) else alive.bit_count()
            if wins > won:
                won, choice = wins, cell
        cache[position] = won, choice
        return cache[position]

    return best((1 << len(boards)) - 1)[1]

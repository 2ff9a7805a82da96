"""The Minesweeper expert: from what a player sees to the cell to reveal next.

A set of cells is an int with a bit a cell. A clue (cells, count) says: so many of these cells are mines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

Clue = tuple[int, int]

MOST_STATES = 20_000  # of a count; beyond, risks are only estimated
MOST_BITS = 40_000_000  # of all states' weights, for boards so large that these are long
FEW = 300  # boards that are played out to the end
PLAYED_OUT = 1000  # positions of that search
CANDIDATES = 8  # cells compared by looking one reveal ahead


class _TooMuch(Exception):
    """A search outgrew its bounds."""


def best_cell(view: Sequence[str], rows: int, cols: int, num_mines: int) -> int:
    """The cell to reveal; `view` has a digit for every open cell, and whatever else it shows tells nothing."""
    unknown = sum(1 << cell for cell, seen in enumerate(view) if not seen.isdigit())
    if unknown.bit_count() == rows * cols:
        # Measured: the middle wins most often on boards up to 7, two cells off the corner on larger ones.
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
    except _TooMuch:
        return _least_estimate(unknown, clues, left)
    least = min(odds.risk.values())
    close = [cell for cell in sorted(odds.risk) if odds.risk[cell] <= least + odds.total * 0.05]
    close.sort(key=odds.risk.__getitem__)
    if not least:
        return close[0]
    try:
        if odds.total <= FEW:
            return _play_out(odds.boards(), unknown, mines, around)
        if len(close) > 1 and odds.states <= 500 and len(odds.risk) <= 64:  # so that looking ahead stays quick
            survivors = [_two_reveals(cell, odds, clues, around[cell]) for cell in close[:CANDIDATES]]
            return close[survivors.index(max(survivors))]
    except _TooMuch:
        pass
    return close[0]


@lru_cache(maxsize=64)
def neighbours(rows: int, cols: int) -> tuple[tuple[int, ...], ...]:
    """The cells around every cell; cells are counted row by row."""
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
    return [sum(1 << near for near in nears) for nears in neighbours(rows, cols)]


def _cells(cells: int) -> Iterator[int]:
    while cells:
        low = cells & -cells
        yield low.bit_length() - 1
        cells ^= low


def _deduce(clues: dict[int, int]) -> tuple[int, int, list[Clue]]:
    """Cells that are certainly free, certain mines, and clues about the rest: from single clues, and pairs one of
    which lies within the other."""
    safe = mines = 0
    while True:
        before = mines
        rest: dict[int, int] = {}
        for cells, count in clues.items():
            count -= (cells & mines).bit_count()
            cells &= ~mines
            if not count:
                safe |= cells
            elif count == cells.bit_count():
                mines |= cells
            else:
                rest[cells] = count
        if safe:
            return safe, mines, []
        if mines != before:
            clues = rest
            continue
        parts = {
            whole ^ part: rest[whole] - rest[part]
            for part in rest
            for whole in rest
            if part != whole and part & whole == part and whole ^ part not in rest
        }
        if not parts:
            return 0, mines, list(rest.items())
        clues = rest | parts


def _least_estimate(unknown: int, clues: list[Clue], left: int) -> int:
    """Where the boards are too many to count: the cell that its worst clue, or else the whole board, fears least."""
    risk = dict.fromkeys(_cells(unknown), left / unknown.bit_count())
    told = 0
    for cells, count in clues:
        share = count / cells.bit_count()
        for cell in _cells(cells):
            risk[cell] = max(risk[cell], share) if told >> cell & 1 else share
        told |= cells
    return min(risk, key=risk.__getitem__)


class _Odds:
    """How many boards fit all clues (`total`), and on how many of these each cell is a mine (`risk`).

    Cells are decided one by one. A state packs what every clue still needs, four bits each; equal states merge. The
    weight of a state counts its boards by their number of mines: a polynomial, packed into an int of `width` bits a
    coefficient, so that products of polynomials are products of ints.
    """

    def __init__(self, unknown: int, clues: list[Clue], left: int, width: int) -> None:
        self.unknown = unknown
        self.left = left  # mines to find
        self.width = width
        self.order = _clue_by_clue(clues)
        undecided = sum(1 << cell for cell in self.order)
        self.free = list(_cells(unknown & ~undecided))  # cells without a clue
        self.start = sum(count << 4 * i for i, (_, count) in enumerate(clues))
        self.steps: list[tuple[list[int], int, int]] = []  # a cell's fields in a state, one in each, those it completes
        for cell in self.order:
            undecided ^= 1 << cell
            mine = [(15 << 4 * i, cells) for i, (cells, _) in enumerate(clues) if cells >> cell & 1]
            fields = [field for field, _ in mine]
            done = sum(field for field, cells in mine if not cells & undecided)
            self.steps.append((fields, sum(field & -field for field in fields), done))
        self._count_back(self._layers())

    def _layers(self) -> list[dict[int, int]]:
        """Before every cell and after the last: state -> weight of what led to it."""
        layers = [{self.start: 1}]
        self.states = 0
        most = min(MOST_STATES, MOST_BITS // (self.width * self.left))
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
            if self.states > most:
                raise _TooMuch
        return layers

    def _count_back(self, layers: list[dict[int, int]]) -> None:
        width, free = self.width, len(self.free)
        ends = layers.pop().get(0, 0)
        after = {0: sum(comb(free, k) << width * k for k in range(free + 1))}
        self.total = self._boards_of(ends * after[0], self.left)
        others = sum(comb(free - 1, k) << width * k for k in range(free)) if free else 0
        self.risk = dict.fromkeys(self.free, self._boards_of(ends * others, self.left - 1))
        self.after = [after]  # as layers, but the weight of what can follow
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
        """How many boards with so many mines a weight counts."""
        return weight >> self.width * mines & (1 << self.width) - 1 if mines >= 0 else 0

    def boards(self) -> list[int]:
        """Every board that fits, as the set of its mines."""
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


def _clue_by_clue(clues: list[Clue]) -> list[int]:
    """The clues' cells, so that few clues are open at a time: next the clue that is closest to complete."""
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
    """On how many boards revealing `cell` and then the best next cell hits no mine."""
    rest = odds.unknown & ~(1 << cell)
    near = rest & around
    others = [(cells & ~(1 << cell), count) for cells, count in clues]
    survived = 0
    for number in range(near.bit_count() + 1):
        then = _Odds(rest, [*others, (near, number)] if near else others, odds.left, odds.width)
        if then.total:
            survived += then.total - min(then.risk.values())
    return survived


def _play_out(boards: list[int], unknown: int, mines: int, around: list[int]) -> int:
    """The cell that wins on the most of `boards`, with perfect play from there on.

    A position is the set of boards that still fit, an int with a bit a board.
    """
    moves: list[tuple[int, int, list[int]]] = []  # cell, boards where it is free, and those by the number it shows
    for cell in _cells(unknown):
        by_number: dict[int, int] = {}
        for i, board in enumerate(boards):
            if not board >> cell & 1:
                number = ((board | mines) & around[cell]).bit_count()
                by_number[number] = by_number.get(number, 0) | 1 << i
        moves.append((cell, sum(by_number.values()), list(by_number.values())))
    known: dict[int, tuple[int, int]] = {}

    def best(fitting: int) -> tuple[int, int]:
        """How many boards can be won, and the cell to reveal."""
        if fitting in known:
            return known[fitting]
        if len(known) > PLAYED_OUT:
            raise _TooMuch
        options = []
        for cell, free, parts in moves:
            alive = fitting & free
            if alive != fitting:
                options.append((-alive.bit_count(), cell, parts))
            elif all(fitting & part != fitting for part in parts):  # costs nothing and tells something: always right
                options = [(-alive.bit_count(), cell, parts)]
                break
        won, choice = -1, -1
        for at_most, cell, parts in sorted(options):
            if -at_most <= won:
                break
            wins = 0
            for part in parts:
                alive = fitting & part
                wins += best(alive)[0] if alive & (alive - 1) else alive.bit_count()  # one board left: won
            if wins > won:
                won, choice = wins, cell
        known[fitting] = won, choice
        return known[fitting]

    return best((1 << len(boards)) - 1)[1]

"""A map as far as it was seen -> the cheapest ways over it, through doors and over things in the way at a price."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from palestra.envs.babyai.engine import FORWARD, LEFT, RIGHT
from palestra.envs.babyai.quick import STEPS

Pos = tuple[int, int]

FAR = 10**9
SHUT = 2  # a shut door: stop and toggle
IN_THE_WAY = 15  # a thing on the way: pick it up, put it down elsewhere
KEPT = 40  # a thing on the way that the mission wants where it is
LOCKED = 60  # a door whose key is known but not in hand
FORBIDDEN = 5_000  # what would fail the mission, if nothing else is left


class Known(NamedTuple):
    """What an attentive player knows: contents of the cells it saw, its pose, what it carries."""

    width: int
    height: int
    cells: list[Any]  # only to be read where `seen` says so
    seen: bytearray
    pos: Pos
    facing: int
    hand: Any
    held: int = 0  # turns since it was taken
    drops: Mapping[int, int] = {}  # how often something was put down on a cell

    def at(self, pos: Pos) -> Any:
        return self.cells[pos[1] * self.width + pos[0]]

    def saw(self, pos: Pos) -> bool:
        return bool(self.seen[pos[1] * self.width + pos[0]])

    def things(self) -> list[tuple[Pos, Any]]:
        """Everything seen that is no wall, with its place."""
        width = self.width
        return [
            ((i % width, i // width), cell)
            for i, cell in enumerate(self.cells)
            if cell is not None and cell.type != "wall" and self.seen[i]
        ]


class Prices(NamedTuple):
    """What it costs to enter a cell beyond the step."""

    doors: int  # 0, or FORBIDDEN where the mission forbids to open other doors
    things: int  # likewise for picking up
    keys: frozenset[str]  # colours of keys that were seen
    held: str | None  # colour of the key in hand
    kept: tuple[Any, ...] = ()  # things that had better stay where they are
    gone: Any = None  # a thing to be thought away
    taken: int = -1  # a cell to be thought barred


class Ways:
    """The cheapest way from one pose to every other."""

    def __init__(self, known: Known, prices: Prices, starts: Iterable[tuple[Pos, int]]) -> None:
        self.known = known
        width, height = known.width, known.height
        cells, seen = known.cells, known.seen
        size = width * height
        steps = [dx + dy * width for dx, dy in STEPS]
        entry: dict[int, int] = {prices.taken: FAR}
        self.cost = cost = [FAR] * (size * 4)
        self.came = came = [-1] * (size * 4)
        heap: list[tuple[int, int]] = []
        for (x, y), d in starts:
            state = (y * width + x) * 4 + d
            cost[state] = 0
            heap.append((0, state))
        heapq.heapify(heap)
        pop, push = heapq.heappop, heapq.heappush
        while heap:
            spent, state = pop(heap)
            if spent > cost[state]:
                continue
            d = state & 3
            for turned in (state - d + (d - 1 & 3), state - d + (d + 1 & 3)):
                if spent + 1 < cost[turned]:
                    cost[turned] = spent + 1
                    came[turned] = state
                    push(heap, (spent + 1, turned))
            cell = (state >> 2) + steps[d]
            price = entry.get(cell)
            if price is None:
                price = entry[cell] = _price(cells[cell], prices) if seen[cell] else FAR
            after = spent + price
            then = cell * 4 + d
            if after < cost[then]:
                cost[then] = after
                came[then] = state
                push(heap, (after, then))

    def before(self, target: Pos) -> tuple[int, int] | None:
        """The cheapest pose that looks at `target` from beside it: (cost, state)."""
        best: tuple[int, int] | None = None
        for d, (dx, dy) in enumerate(STEPS):
            x, y = target[0] - dx, target[1] - dy
            if 0 <= x < self.known.width and 0 <= y < self.known.height:
                state = (y * self.known.width + x) * 4 + d
                if self.cost[state] < FAR and (best is None or self.cost[state] < best[0]):
                    best = (self.cost[state], state)
        return best

    def nearest(self, wanted: Callable[[int], int | None]) -> tuple[int, int] | None:
        """The cheapest pose whose cell ahead is wanted, at the price `wanted` gives for that cell's index."""
        width = self.known.width
        steps = [dx + dy * width for dx, dy in STEPS]
        prices: dict[int, int | None] = {}
        best: tuple[int, int] | None = None
        for state, spent in enumerate(self.cost):
            if spent >= FAR or (best is not None and spent >= best[0]):
                continue
            cell = (state >> 2) + steps[state & 3]
            if cell not in prices:
                prices[cell] = wanted(cell)
            price = prices[cell]
            if price is not None and (best is None or spent + price < best[0]):
                best = (spent + price, state)
        return best

    def path(self, state: int) -> list[int]:
        """The states that lead to `state`, the first one included."""
        states = [state]
        while (state := self.came[state]) >= 0:
            states.append(state)
        states.reverse()
        return states


def cells_of(states: list[int]) -> set[int]:
    return {state >> 2 for state in states}


def moves_of(states: list[int]) -> list[int]:
    """The moves between consecutive states."""
    moves = []
    for one, two in pairwise(states):
        if one >> 2 != two >> 2:
            moves.append(FORWARD)
        else:
            moves.append(RIGHT if (two - one) & 3 == 1 else LEFT)
    return moves


def is_open(cell: Any) -> bool:
    return cell is None or (cell.type == "door" and cell.is_open)


def _price(cell: Any, prices: Prices) -> int:
    if cell is None or cell is prices.gone:
        return 1
    kind = cell.type
    if kind == "wall":
        return FAR
    if kind != "door":
        stay = KEPT if any(cell is one for one in prices.kept) else 0
        return 1 + IN_THE_WAY + stay + (0 if kind == "box" else prices.things)
    if cell.is_open:
        return 1
    if not cell.is_locked or cell.color == prices.held:
        return 1 + SHUT + prices.doors
    return 1 + LOCKED + prices.doors if cell.color in prices.keys else FAR

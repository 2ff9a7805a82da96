"""Find the cheapest paths through the explored part of the grid, with costs for doors and objects on the way."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from palestra.envs.babyai.fast_levels import DIRECTIONS
from palestra.envs.babyai.level import FORWARD, LEFT, RIGHT

Pos = tuple[int, int]

FAR = 10**9  # cost of a state that cannot be reached
# Extra costs for entering a cell:
SHUT = 2  # a closed door, which must be opened
OBSTACLE = 15  # an object on the path, which must be picked up and dropped elsewhere
KEEP_IN_PLACE = 40  # an object on the path that the mission requires to stay in place
LOCKED = 60  # a locked door whose key was seen but is not carried
FORBIDDEN = 5_000  # an action that would fail the mission; used only if there is no alternative


class Knowledge(NamedTuple):
    """Information available to the expert: the cells it has seen, its pose and the object it carries."""

    width: int
    height: int
    cells: list[Any]  # valid only where `seen` is set
    seen: bytearray
    pos: Pos
    facing: int
    hand: Any
    held: int = 0  # turns since the carried object was picked up
    drops: Mapping[int, int] = {}  # number of drops per cell
    first_facing: int = 0  # direction at the start of the episode

    def at(self, pos: Pos) -> Any:
        return self.cells[pos[1] * self.width + pos[0]]

    def things(self) -> list[tuple[Pos, Any]]:
        """Return the position of every object seen so far, except walls, and the object itself."""
        width = self.width
        return [
            ((i % width, i // width), cell)
            for i, cell in enumerate(self.cells)
            if cell is not None and cell.type != "wall" and self.seen[i]
        ]

    def turned(self) -> Knowledge:
        """Return the same information in a grid that is turned so that the agent faced right at the start.

        Plans for this grid do not depend on absolute directions, which observations do not state.
        """
        quarters = self.first_facing
        if not quarters:
            return self
        sources = _cells_after_turn(self.width, self.height, quarters)
        places = {cell: i for i, cell in enumerate(sources)} if self.drops else {}
        return self._replace(
            width=self.height if quarters % 2 else self.width,
            height=self.width if quarters % 2 else self.height,
            cells=[self.cells[cell] for cell in sources],
            seen=bytearray([self.seen[cell] for cell in sources]),
            pos=turn(self.pos, self.width, self.height, quarters),
            facing=(self.facing - quarters) % 4,
            drops={places[cell]: count for cell, count in self.drops.items()},
            first_facing=0,
        )


def turn(pos: Pos, width: int, height: int, quarters: int) -> Pos:
    """Return where a cell of a grid with this size is after the grid was turned counterclockwise by quarter turns."""
    for _ in range(quarters):
        pos = pos[1], width - 1 - pos[0]
        width, height = height, width
    return pos


@cache
def _cells_after_turn(width: int, height: int, quarters: int) -> tuple[int, ...]:
    """Return the old index of every cell of a turned grid, in the order of the new indices."""
    new_width = height if quarters % 2 else width
    new = [turn((x, y), width, height, quarters) for y in range(height) for x in range(width)]
    return tuple(sorted(range(width * height), key=lambda cell: new[cell][1] * new_width + new[cell][0]))


class Costs(NamedTuple):
    """Settings that determine the extra cost of entering a cell, in addition to the step itself."""

    doors: int  # 0, or FORBIDDEN if the mission forbids opening other doors
    things: int  # 0, or FORBIDDEN if the mission forbids picking up other objects
    keys: frozenset[str]  # colors of the keys seen so far
    held: str | None  # color of the carried key
    keep: tuple[Any, ...] = ()  # objects that should not be moved
    removed: Any = None  # an object to treat as absent
    blocked_cell: int = -1  # a cell to treat as blocked


class ShortestPaths:
    """Cheapest paths from the start poses to every other pose."""

    def __init__(self, knowledge: Knowledge, costs: Costs, starts: Iterable[tuple[Pos, int]]) -> None:
        self.knowledge = knowledge
        width, height = knowledge.width, knowledge.height
        cells, seen = knowledge.cells, knowledge.seen
        size = width * height
        steps = [dx + dy * width for dx, dy in DIRECTIONS]
        entry: dict[int, int] = {costs.blocked_cell: FAR}
        self.cost = cost = [FAR] * (size * 4)
        self.previous = previous = [-1] * (size * 4)
        heap: list[tuple[int, int]] = []
        for (x, y), d in starts:
            state = (y * width + x) * 4 + d
            cost[state] = 0
            heap.append((0, state))
        heapq.heapify(heap)
        pop, push = heapq.heappop, heapq.heappush
        while heap:
            cost_so_far, state = pop(heap)
            if cost_so_far > cost[state]:
                continue
            d = state & 3
            for neighbor in (state - d + (d - 1 & 3), state - d + (d + 1 & 3)):
                if cost_so_far + 1 < cost[neighbor]:
                    cost[neighbor] = cost_so_far + 1
                    previous[neighbor] = state
                    push(heap, (cost_so_far + 1, neighbor))
            cell = (state >> 2) + steps[d]
            entry_cost = entry.get(cell)
            if entry_cost is None:
                entry_cost = entry[cell] = _entry_cost(cells[cell], costs) if seen[cell] else FAR
            after = cost_so_far + entry_cost
            entered = cell * 4 + d
            if after < cost[entered]:
                cost[entered] = after
                previous[entered] = state
                push(heap, (after, entered))

    def facing(self, target: Pos) -> tuple[int, int] | None:
        """Return (cost, state) of the cheapest pose that is next to `target` and faces it."""
        best: tuple[int, int] | None = None
        for d, (dx, dy) in enumerate(DIRECTIONS):
            x, y = target[0] - dx, target[1] - dy
            if 0 <= x < self.knowledge.width and 0 <= y < self.knowledge.height:
                state = (y * self.knowledge.width + x) * 4 + d
                if self.cost[state] < FAR and (best is None or self.cost[state] < best[0]):
                    best = (self.cost[state], state)
        return best

    def nearest(self, wanted: Callable[[int], int | None]) -> tuple[int, int] | None:
        """Return (cost, state) of the cheapest pose that faces an accepted cell.

        `wanted` returns the extra cost of a cell, or None if the cell is not accepted.
        """
        width = self.knowledge.width
        steps = [dx + dy * width for dx, dy in DIRECTIONS]
        costs: dict[int, int | None] = {}
        best: tuple[int, int] | None = None
        for state, cost_so_far in enumerate(self.cost):
            if cost_so_far >= FAR or (best is not None and cost_so_far >= best[0]):
                continue
            cell = (state >> 2) + steps[state & 3]
            if cell not in costs:
                costs[cell] = wanted(cell)
            entry_cost = costs[cell]
            if entry_cost is not None and (best is None or cost_so_far + entry_cost < best[0]):
                best = (cost_so_far + entry_cost, state)
        return best

    def path(self, state: int) -> list[int]:
        """Return the states on the path to `state`, including the first."""
        states = [state]
        while (state := self.previous[state]) >= 0:
            states.append(state)
        states.reverse()
        return states


def cells_of(states: list[int]) -> set[int]:
    return {state >> 2 for state in states}


def moves_of(states: list[int]) -> list[int]:
    """Return the moves between consecutive states."""
    moves = []
    for before, after in pairwise(states):
        if before >> 2 != after >> 2:
            moves.append(FORWARD)
        else:
            moves.append(RIGHT if (after - before) & 3 == 1 else LEFT)
    return moves


def is_open(cell: Any) -> bool:
    return cell is None or (cell.type == "door" and cell.is_open)


def _entry_cost(cell: Any, costs: Costs) -> int:
    if cell is None or cell is costs.removed:
        return 1
    kind = cell.type
    if kind == "wall":
        return FAR
    if kind != "door":
        stay = KEEP_IN_PLACE if any(cell is kept for kept in costs.keep) else 0
        return 1 + OBSTACLE + stay + (0 if kind == "box" else costs.things)
    if cell.is_open:
        return 1
    if not cell.is_locked or cell.color == costs.held:
        return 1 + SHUT + costs.doors
    return 1 + LOCKED + costs.doors if cell.color in costs.keys else FAR

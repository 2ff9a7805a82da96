"""Generate the streets of a town, and find routes in them."""

from __future__ import annotations

import heapq
from math import ceil, hypot
from random import Random
from typing import NamedTuple

COLUMNS, ROWS = 7, 6
SPACING = 180  # meters between streets, on average
TREES = (
    "Acacia", "Alder", "Ash", "Aspen", "Beech", "Birch", "Cedar", "Cherry", "Chestnut", "Cypress", "Elm", "Fir",
    "Hawthorn", "Hazel", "Holly", "Juniper", "Larch", "Laurel", "Linden", "Maple", "Oak", "Olive", "Pine", "Poplar",
    "Rowan", "Spruce", "Sycamore", "Walnut", "Willow", "Yew",
)  # fmt: skip
SPEEDS = {"Walking": 5.0, "Cycling": 15.0, "Driving": 30.0}  # km/h; main streets are faster for cars
MAIN_SPEED = 50.0


class Segment(NamedTuple):
    """Part of a street between two corners."""

    street: str
    end: int
    meters: int
    one_way: bool  # against the direction of traffic
    main: bool


class Leg(NamedTuple):
    """Part of a route on one street."""

    street: str
    meters: int


class Route(NamedTuple):
    meters: int
    minutes: int  # rounded up
    legs: tuple[Leg, ...]


class Streets:
    """A grid of streets and avenues with different distances; some segments are missing, some are one-way."""

    def __init__(self, rng: Random) -> None:
        names = rng.sample(TREES, COLUMNS + ROWS)
        self.avenues = [f"{name} Avenue" for name in names[:COLUMNS]]
        self.streets = [f"{name} Street" for name in names[COLUMNS:]]
        self.x = _positions(rng, COLUMNS)
        self.y = _positions(rng, ROWS)
        main = {rng.choice(self.avenues), rng.choice(self.streets)}
        one_way = {rng.choice([name for name in (*self.avenues, *self.streets) if name not in main]) for _ in range(3)}
        self.segments: list[list[Segment]] = [[] for _ in range(COLUMNS * ROWS)]
        for row in range(ROWS):
            for column in range(COLUMNS):
                here = row * COLUMNS + column
                if column + 1 < COLUMNS and (row in (0, ROWS - 1) or rng.random() > 0.12):
                    self._connect(here, here + 1, self.streets[row], self.x[column + 1] - self.x[column], main, one_way)
                if row + 1 < ROWS and (column in (0, COLUMNS - 1) or rng.random() > 0.12):
                    end = here + COLUMNS
                    self._connect(here, end, self.avenues[column], self.y[row + 1] - self.y[row], main, one_way)

    def _connect(self, start: int, end: int, street: str, meters: int, main: set[str], one_way: set[str]) -> None:
        self.segments[start].append(Segment(street, end, meters, False, street in main))
        self.segments[end].append(Segment(street, start, meters, street in one_way, street in main))

    def corner(self, node: int) -> tuple[str, str]:
        """Return the street and the avenue that cross at a node."""
        return self.streets[node // COLUMNS], self.avenues[node % COLUMNS]

    def position(self, node: int) -> tuple[int, int]:
        """Return the position of a corner in meters."""
        return self.x[node % COLUMNS], self.y[node // COLUMNS]

    def distance(self, first: int, second: int) -> int:
        """Return the distance between two corners in a straight line, in meters."""
        (x, y), (to_x, to_y) = self.position(first), self.position(second)
        return round(hypot(x - to_x, y - to_y))

    def route(self, start: int, end: int, mode: str) -> Route | None:
        """Return the fastest route; cars obey one-way streets. None if there is none."""
        queue: list[tuple[float, int, tuple[Segment, ...]]] = [(0.0, start, ())]
        done: set[int] = set()
        while queue:
            seconds, node, path = heapq.heappop(queue)
            if node == end:
                return Route(sum(part.meters for part in path), ceil(round(seconds / 60, 6)), _legs(path))
            if node in done:
                continue
            done.add(node)
            for segment in self.segments[node]:
                if mode == "Driving" and segment.one_way:
                    continue
                speed = MAIN_SPEED if mode == "Driving" and segment.main else SPEEDS[mode]
                heapq.heappush(queue, (seconds + segment.meters * 3.6 / speed, segment.end, (*path, segment)))
        return None


def _positions(rng: Random, count: int) -> list[int]:
    positions = [0]
    for _ in range(count - 1):
        positions.append(positions[-1] + SPACING + rng.randint(-8, 8) * 10)
    return positions


def _legs(path: tuple[Segment, ...]) -> tuple[Leg, ...]:
    legs: list[Leg] = []
    for segment in path:
        if legs and legs[-1].street == segment.street:
            legs[-1] = Leg(segment.street, legs[-1].meters + segment.meters)
        else:
            legs.append(Leg(segment.street, segment.meters))
    return tuple(legs)

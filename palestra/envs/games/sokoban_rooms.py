"""Sokoban rooms as sets of cells: dealing one that can be solved, and finding the shortest way to solve it.

A set of cells is a whole number with a bit for every cell; the cell below another is `cols` bits higher.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

from palestra.errors import BadValue

# By the number of boxes: cells from which a box can reach a goal, so few that the expert can search the whole room; and
# pushes that a start needs at least, if no box were in another's way.
MOST_LIVE = {1: 200, 2: 60, 3: 24, 4: 16, 5: 15}
LEAST_PUSHES = {1: 2, 2: 4, 3: 6, 4: 8, 5: 7}
SEARCHES = ((1, 12_000), (4, 2_000))  # weight of the estimate (1: shortest plan), positions to look at
ATTEMPTS = 20_000  # about one in ten is good; this many never fail in the sizes that `Sokoban` takes


class Room(NamedTuple):
    cols: int
    floor: int  # every cell that is no wall
    goals: int
    boxes: int
    player: int


def deal(rng: Random, rows: int, cols: int, num_boxes: int, turns: int) -> Room:
    """A room that can be solved in `turns` moves: the boxes were pulled off their goals in as many at most."""
    most_floor = min(7 * (rows - 2) * (cols - 2) // 8, MOST_LIVE[num_boxes] + 12)
    length = min(turns, 13 * num_boxes)
    for _ in range(ATTEMPTS):
        floor = _carve(rng, rows, cols, rng.randint(2 * most_floor // 3, most_floor))
        goals = _choose_goals(rng, floor, cols, num_boxes)
        pushes = push_distances(floor, goals, cols)
        if len(pushes) > MOST_LIVE[num_boxes]:
            continue
        best = (0, 0, 0, 0)
        for _ in range(3):
            pulled = _pull(rng, Room(cols, floor, goals, goals, 0), pushes, length)
            best = max(best, pulled)
            if not pulled[0]:
                break  # too narrow to free every box
        needed, moves, boxes, player = best
        if needed >= LEAST_PUSHES[num_boxes]:
            near = _within(player, floor & ~boxes, cols, min(turns - moves, rows + cols))
            return Room(cols, floor, goals, boxes, rng.choice(list(cells_of(near))))
    raise BadValue(
        f"no room of {rows} x {cols} with {num_boxes} boxes for {turns} moves was found; take a larger room, fewer "
        "boxes or more turns"
    )


def cells_of(cells: int) -> Iterator[int]:
    while cells:
        cell = cells & -cells
        yield cell
        cells ^= cell


def _around(cells: int, cols: int) -> int:
    return cells << 1 | cells >> 1 | cells << cols | cells >> cols


def _within(start: int, free: int, cols: int, steps: int) -> int:
    for _ in range(steps):
        start |= _around(start, cols) & free
    return start


def _carve(rng: Random, rows: int, cols: int, size: int) -> int:
    """At least `size` connected cells: the trail of a wandering 2 x 2 block."""
    row, col = rng.randint(1, rows - 3), rng.randint(1, cols - 3)
    block = 3 | 3 << cols
    floor = 0
    while floor.bit_count() < size:
        floor |= block << row * cols + col
        way = int(rng.random() * 4)
        if way < 2:
            row = max(1, row - 1) if way else min(rows - 3, row + 1)
        else:
            col = max(1, col - 1) if way == 2 else min(cols - 3, col + 1)
    return floor


def _choose_goals(rng: Random, floor: int, cols: int, count: int) -> int:
    """Goals close together make for longer plans than goals anywhere: the next one is one or a few steps away."""
    steps = rng.choice((1, 2, 3) if count < 5 else (3,))
    goals = rng.choice(list(cells_of(floor)))
    for _ in range(count - 1):
        goals |= rng.choice(list(cells_of(_within(goals, floor, cols, steps) & ~goals)))
    return goals


def push_distances(floor: int, goals: int, cols: int) -> dict[int, int]:
    """Cell -> pushes that a lone box there needs to the nearest goal; without cells from which it can reach none."""
    distances: dict[int, int] = {}
    reached = seen = goals
    pushes = 0
    while reached:
        for cell in cells_of(reached):
            distances[cell] = pushes
        pushes += 1
        before = reached >> 1 & floor << 1 | reached << 1 & floor >> 1
        before |= reached >> cols & floor << cols | reached << cols & floor >> cols
        reached = before & floor & ~seen
        seen |= reached
    return distances


def _pull(rng: Random, room: Room, pushes: dict[int, int], length: int) -> tuple[int, int, int, int]:
    """Play backwards from the solved room for `length` moves, pulling boxes.

    Of the positions on the way with no box on a goal, the farthest: (pushes that it needs at least, moves to here,
    boxes, player). All zero where there was none.
    """
    cols, floor, goals, boxes, player = room
    needed = moves = 0
    best = (0, 0, 0, 0)
    while True:
        free = floor & ~boxes
        stands = []  # cells to pull from, by direction; the player steps back, and the box comes to where he stood
        for shift in (1, cols):
            stands.append((shift, (boxes & free >> shift & free >> 2 * shift) << shift))
            stands.append((-shift, (boxes & free << shift & free << 2 * shift) >> shift))
        options: list[tuple[int, int, int, int]] = []
        away: list[tuple[int, int, int, int]] = []
        waiting = stands[0][1] | stands[1][1] | stands[2][1] | stands[3][1]
        reached = player or free  # the last move of the plan may end anywhere
        free ^= reached
        for walk in range(1, length - moves + 1):
            here = reached & waiting
            if here:
                for shift, cells in stands:
                    for stand in cells_of(here & cells):
                        box = stand >> shift if shift > 0 else stand << -shift
                        options.append((walk, shift, stand, box))
                        if pushes[stand] > pushes[box]:
                            away.append(options[-1])
                waiting ^= here
            if not waiting:
                break
            reached = _around(reached, cols) & free
            free ^= reached
        if not options:
            return best
        freeing = [option for option in away if option[3] & goals]
        if freeing and rng.random() < 0.7:
            options = freeing
        elif away and rng.random() < 0.8:
            options = away
        walk, shift, stand, box = rng.choice(options)
        boxes ^= box | stand
        player = stand << shift if shift > 0 else stand >> -shift
        moves += walk
        needed += pushes[stand] - pushes[box]
        if needed >= best[0] and not boxes & goals:
            best = (needed, moves, boxes, player)


def solve(room: Room) -> tuple[str | None, bool]:
    """The way to the goals as a string of u, d, l, r, or None; and whether there is none for certain.

    It is a shortest way where the search is quick enough, as in the rooms that are dealt. Of all shortest ways it is
    the one whose pushes come first in a fixed order: a later search on the way finds the rest of it.
    """
    for weight, limit in SEARCHES:
        pushes, lost = _search(room, weight, limit)
        if pushes is not None:
            return _walk_out(room, pushes), False
        if lost:
            return None, True
    return None, False


def _search(room: Room, weight: int, limit: int) -> tuple[str | None, bool]:
    """A* over pushes, counting moves. A push is the letter with the number 4 * cell of the box + direction."""
    cols, floor, goals, boxes, player = room
    distances = {cell: weight * pushes for cell, pushes in push_distances(floor, goals, cols).items()}
    live = sum(distances)  # cells that a box may be on
    if boxes & ~live:
        return None, True
    queue = [(sum(distances[box] for box in cells_of(boxes)), "", player, boxes)]
    bounds: dict[tuple[int, int], int] = {}
    done: set[tuple[int, int]] = set()
    while queue and len(done) < limit:
        bound, way, player, boxes = heappop(queue)  # ties go to the way that comes first in the order of pushes
        if boxes == goals:
            return way, False
        if (player, boxes) in done:
            continue
        done.add((player, boxes))
        free = floor & ~boxes
        open_to_boxes = live & ~boxes
        up = (boxes & open_to_boxes << cols & free >> cols) << cols  # cells to push up from, and so on
        down = (boxes & open_to_boxes >> cols & free << cols) >> cols
        left = (boxes & open_to_boxes << 1 & free >> 1) << 1
        right = (boxes & open_to_boxes >> 1 & free << 1) >> 1
        stands = up | down | left | right
        reached = player
        free ^= player
        while reached:
            bound += 1
            here = reached & stands
            if here:
                for code, cells in enumerate((up & here, down & here, left & here, right & here)):
                    while cells:  # `cells_of` and `_around` are written out here: half of all time goes by in this loop
                        stand = cells & -cells
                        cells ^= stand
                        if code == 0:
                            box, target = stand >> cols, stand >> 2 * cols
                        elif code == 1:
                            box, target = stand << cols, stand << 2 * cols
                        elif code == 2:
                            box, target = stand >> 1, stand >> 2
                        else:
                            box, target = stand << 1, stand << 2
                        after = (box, boxes ^ box | target)
                        after_bound = bound + distances[target] - distances[box]
                        if after not in done and bounds.get(after, after_bound) >= after_bound:
                            bounds[after] = after_bound
                            heappush(queue, (after_bound, way + chr(4 * box.bit_length() + code), *after))
                stands ^= here
                if not stands:
                    break
            reached = (reached << 1 | reached >> 1 | reached << cols | reached >> cols) & free
            free ^= reached
    return None, not queue


def _walk_out(room: Room, pushes: str) -> str:
    """The moves that make these pushes: before each, the shortest walk (of several, up before down, left, right)."""
    cols, floor, _, boxes, player = room
    way = []
    for push in map(ord, pushes):
        box = 1 << push // 4 - 1
        letter = "udlr"[push % 4]
        rings = [_neighbour(box, "durl"[push % 4], cols)]
        free = floor & ~boxes
        seen = rings[0]
        while not rings[-1] & player:
            rings.append(_around(rings[-1], cols) & free & ~seen)
            seen |= rings[-1]
        for ring in reversed(rings[:-1]):
            step = next(step for step in "udlr" if _neighbour(player, step, cols) & ring)
            player = _neighbour(player, step, cols)
            way.append(step)
        way.append(letter)
        player = box
        boxes ^= box | _neighbour(box, letter, cols)
    return "".join(way)


def _neighbour(cell: int, letter: str, cols: int) -> int:
    if letter == "u":
        return cell >> cols
    if letter == "d":
        return cell << cols
    return cell >> 1 if letter == "l" else cell << 1

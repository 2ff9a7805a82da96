"""A mission and what was seen so far -> the next moves of a player that solves it.

The expert plans anew every turn, from what it saw, and from nothing else: it looks for the nearest unseen floor until
what the mission names is in sight, clears the way (doors, keys, things) before it takes up what it has to carry, and
puts down what it no longer needs where it is in nobody's way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from palestra.envs.babyai.engine import DROP, PICKUP, TOGGLE
from palestra.envs.babyai.quick import STEPS
from palestra.envs.babyai.search import (
    FAR,
    FORBIDDEN,
    IN_THE_WAY,
    Known,
    Pos,
    Prices,
    Ways,
    cells_of,
    is_open,
    moves_of,
)

PATIENCE = 12  # turns a thing is carried about for a good place; then any place will do
AGAIN = 12  # what it costs to put something down where something was put down before: plans must not go in circles

_AROUND = ((-1, -1), (0, -1), (1, -1), (1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0))  # the ring of neighbours, in order


class Intent(NamedTuple):
    """What to do next: walk, and then perhaps act on the cell that is then ahead."""

    moves: list[int]
    act: int | None = None
    target: Pos | None = None  # what the walk leads to
    through: bool = False  # the act opens a door in order to pass


def next_intent(known: Known, mission: Any) -> Intent | None:
    """None: there is nothing left that could help."""
    return _Mind(known, _active(mission)).decide()


def _active(instruction: Any) -> Any:
    """The clause to be fulfilled now."""
    kind = type(instruction).__name__
    if kind == "BeforeInstr":
        return _active(instruction.instr_b if instruction.a_done == "success" else instruction.instr_a)
    if kind == "AfterInstr":
        return _active(instruction.instr_a if instruction.b_done == "success" else instruction.instr_b)
    if kind == "AndInstr":
        return _active(instruction.instr_b if instruction.a_done == "success" else instruction.instr_a)
    return instruction


def _among(what: Any, description: Any) -> bool:
    return any(what is one for one in description.obj_set)


class _Mind:
    def __init__(self, known: Known, clause: Any) -> None:
        self.known = known
        self.clause = clause
        self.kind = type(clause).__name__
        self.things = known.things()
        strict = getattr(clause, "strict", False)
        self.hands_off = strict and self.kind == "PickupInstr"  # boxes may still be opened, which removes them
        hand = known.hand
        self.prices = Prices(
            doors=FORBIDDEN if strict and self.kind == "OpenInstr" else 0,
            things=FORBIDDEN if self.hands_off else 0,
            keys=frozenset(cell.color for _, cell in self.things if cell.type == "key"),
            held=hand.color if hand is not None and hand.type == "key" else None,
            kept=tuple(clause.desc_fixed.obj_set) if self.kind == "PutNextInstr" else (),
        )
        self.ways = Ways(known, self.prices, [(known.pos, known.facing)])
        self._turned: Ways | None = None
        self.unlocking: set[Pos] = set()

    def decide(self) -> Intent | None:
        if self.kind == "GoToInstr":
            return self._go_to()
        if self.kind == "OpenInstr":
            return self._open()
        if self.kind == "PickupInstr":
            return self._pick_up()
        return self._put_next()

    # The four kinds of clauses

    def _go_to(self) -> Intent | None:
        if self.known.hand is not None and _among(self.known.hand, self.clause.desc):
            return self._put_down(set())  # it counts as reached when it lies ahead
        target = self._nearest(self.clause.desc)
        return self._explore() if target is None else self._approach(target, None)

    def _open(self) -> Intent | None:
        best: tuple[int, Pos] | None = None
        for pos, door in self.things:
            if door.type == "door" and _among(door, self.clause.desc):
                found = self.turned.before(pos)
                if found is not None:
                    price = found[0] + (2 if door.is_open else 200 if self._lacks_key(door) else 0)
                    if best is None or price < best[0]:
                        best = (price, pos)
        if best is None or best[0] >= FORBIDDEN:
            return self._explore() or (None if best is None else self._approach(best[1], TOGGLE))
        door = self.known.at(best[1])
        if self._lacks_key(door):
            return self._unlock(best[1])
        return self._approach(best[1], TOGGLE)

    def _pick_up(self) -> Intent | None:
        target = self._nearest(self.clause.desc)
        hand = self.known.hand
        if target is None:
            if hand is not None and _among(hand, self.clause.desc):
                return self._put_down(set())  # only what is picked up from the floor counts
            return self._explore()
        return self._take(target)

    def _put_next(self) -> Intent | None:
        move, fixed = self.clause.desc_move, self.clause.desc_fixed
        hand = self.known.hand
        if hand is not None and _among(hand, fixed) and not _among(hand, move):
            away = self._nearest(move)
            return self._put_down(set()) if away is None else self._put_down_before(away, set())
        goals = [pos for pos, cell in self.things if _among(cell, fixed)]
        if hand is not None and _among(hand, move):
            if not goals:
                return self._explore()
            place = self._place_beside(self.ways, goals, None)
            if place is None:
                return self._explore()
            return self._deliver(place)
        target = self._nearest(move)
        if target is None or not goals:
            return self._explore()
        what = self.known.at(target)
        obstacle, route = self._obstacle_from(target, what, goals)
        if obstacle is not None:
            return self._clear(obstacle, route)
        return self._take(target, route)

    # Steps they are made of

    @property
    def turned(self) -> Ways:
        """Ways that count no first turn: where a thing is put down must not change while the player turns there."""
        if self._turned is None:
            self._turned = Ways(self.known, self.prices, [(self.known.pos, d) for d in range(4)])
        return self._turned

    def _nearest(self, description: Any) -> Pos | None:
        best: tuple[int, Pos] | None = None
        for pos, cell in self.things:
            if _among(cell, description):
                found = self.turned.before(pos)
                if found is not None and (best is None or found[0] < best[0]):
                    best = (found[0], pos)
        return None if best is None else best[1]

    def _take(self, target: Pos, avoid: set[int] | None = None) -> Intent | None:
        """Pick it up, with a hand that is free by then."""
        if self.known.hand is not None:
            found = self.turned.before(target)
            if found is not None:
                route = self.turned.path(found[1])
                if self._first_obstacle(route) is None:
                    return self._put_down_before(target, avoid or set())
        return self._approach(target, PICKUP)

    def _approach(self, target: Pos, act: int | None) -> Intent | None:
        found = self.ways.before(target)
        if found is None:
            return self._explore()
        return self._travel(found[1], act, target)

    def _travel(self, state: int, act: int | None, target: Pos) -> Intent | None:
        """Go to a pose; what is in the way is dealt with first."""
        states = self.ways.path(state)
        blocked = self._first_obstacle(states)
        if blocked is None:
            return Intent(moves_of(states), act, target)
        number, pos = blocked
        cell = self.known.at(pos)
        if cell.type == "door":
            if self._lacks_key(cell):
                return self._unlock(pos)
            return Intent(moves_of(states[:number]), TOGGLE, pos, through=True)
        if self.hands_off and cell.type == "box":
            return Intent(moves_of(states[:number]), TOGGLE, pos)
        if self.known.hand is not None:
            return self._put_down_before(target, set())
        return Intent(moves_of(states[:number]), PICKUP, pos)

    def _first_obstacle(self, states: list[int], gone: Any = None) -> tuple[int, Pos] | None:
        width = self.known.width
        last = states[0] >> 2
        for number, state in enumerate(states):
            cell = state >> 2
            if cell != last:
                last = cell
                what = self.known.cells[cell]
                if not is_open(what) and what is not gone:
                    return number, (cell % width, cell // width)
        return None

    def _lacks_key(self, door: Any) -> bool:
        return bool(door.type == "door" and door.is_locked and door.color != self.prices.held)

    def _unlock(self, door_pos: Pos) -> Intent | None:
        """Get the key of a locked door; with it in hand, the door is an ordinary one."""
        if door_pos in self.unlocking:
            return None
        self.unlocking.add(door_pos)
        door = self.known.at(door_pos)
        best: tuple[int, Pos] | None = None
        for pos, cell in self.things:
            if cell.type == "key" and cell.color == door.color:
                found = self.turned.before(pos)
                if found is not None and (best is None or found[0] < best[0]):
                    best = (found[0], pos)
        if best is None:
            return self._explore()
        key = self.known.at(best[1])
        ways = Ways(self.known, self.prices._replace(gone=key), [(best[1], d) for d in range(4)])
        found = ways.before(door_pos)
        if found is None:
            return self._take(best[1])
        states = ways.path(found[1])
        blocked = self._first_obstacle(states, key)
        if blocked is not None:
            cell = self.known.at(blocked[1])
            if cell.type != "door" or self._lacks_key(cell):
                return self._clear(blocked[1], cells_of(states))
        return self._take(best[1], cells_of(states))

    def _clear(self, pos: Pos, route: set[int]) -> Intent | None:
        """Get out of the way what bars a route that will be walked with a full hand."""
        what = self.known.at(pos)
        if what.type == "door":
            return self._unlock(pos)
        return self._take(pos, route)

    def _place_beside(self, ways: Ways, goals: list[Pos], gone: Any) -> int | None:
        """The cheapest pose that looks at floor beside one of `goals`; a thing lying there has its price."""
        width = self.known.width
        steps = [dx + dy * width for dx, dy in STEPS]
        near = {y * width + x + step for x, y in goals for step in steps}
        cells, seen = self.known.cells, self.known.seen

        def wanted(cell: int) -> int | None:
            if cell not in near or not seen[cell]:
                return None
            what = cells[cell]
            if what is None or what is gone:
                return 0
            return None if what.type in ("wall", "door") else IN_THE_WAY

        found = ways.nearest(wanted)
        return None if found is None else found[1]

    def _deliver(self, state: int) -> Intent | None:
        """Walk to the pose with what is carried, and put it down ahead."""
        width = self.known.width
        dx, dy = STEPS[state & 3]
        cell = state >> 2
        ahead = (cell % width + dx, cell // width + dy)
        states = self.ways.path(state)
        if self.known.at(ahead) is not None or self._first_obstacle(states) is not None:
            blocked = self._first_obstacle(states)
            if (
                blocked is not None
                and self.known.at(blocked[1]).type == "door"
                and not self._lacks_key(self.known.at(blocked[1]))
            ):
                return self._travel(state, None, ahead)
            return self._put_down_before(ahead, set())
        return Intent(moves_of(states), DROP, ahead)

    def _obstacle_from(self, start: Pos, what: Any, goals: list[Pos]) -> tuple[Pos | None, set[int]]:
        """What bars the way on which `what` is to be carried from `start` to a place beside `goals`, and that way."""
        ways = Ways(self.known, self.prices._replace(gone=what), [(start, d) for d in range(4)])
        state = self._place_beside(ways, goals, what)
        if state is None:
            return None, set()
        states = ways.path(state)
        width = self.known.width
        dx, dy = STEPS[state & 3]
        ahead = (state >> 2) % width + dx, (state >> 2) // width + dy
        route = cells_of(states) | {ahead[1] * width + ahead[0]}
        blocked = self._first_obstacle(states, what)
        if blocked is not None:
            cell = self.known.at(blocked[1])
            return (None if cell.type == "door" and not self._lacks_key(cell) else blocked[1]), route
        there = self.known.at(ahead)
        return (ahead if there is not None and there is not what else None), route

    def _put_down_before(self, target: Pos, avoid: set[int]) -> Intent | None:
        """Put down what is in hand, off the way to `target`."""
        found = self.turned.before(target)
        route = set() if found is None else cells_of(self.turned.path(found[1]))
        return self._put_down(avoid | route | {target[1] * self.known.width + target[0]}, target)

    def _put_down(self, avoid: set[int], target: Pos | None = None) -> Intent | None:
        """Put down what is in hand: near, and where it bars nothing."""
        known = self.known
        for careful in (3, 2, 1) if known.held <= PATIENCE else ():

            def wanted(cell: int, careful: int = careful) -> int | None:
                if not known.seen[cell] or known.cells[cell] is not None or cell in avoid:
                    return None
                if careful > 1 and self._beside_door(cell):
                    return None
                return None if careful > 2 and not self._harmless(cell) else known.drops.get(cell, 0) * AGAIN

            found = self.turned.nearest(wanted)
            if found is not None and self._first_obstacle(self.turned.path(found[1])) is None:
                return self._drop_from(found[1])
        poses = self._dropping_poses()
        for state in poses:
            if target is None or self._still_free(state, target):
                return self._drop_from(state)
        return self._drop_from(poses[0]) if poses else self._explore()

    def _dropping_poses(self) -> list[int]:
        """Poses within reach that look at free floor, nearest first."""
        known, steps = self.known, [dx + dy * self.known.width for dx, dy in STEPS]
        poses = []
        for state, cost in enumerate(self.turned.cost):
            cell = (state >> 2) + steps[state & 3]
            free = cost < IN_THE_WAY and known.seen[cell] and known.cells[cell] is None
            if free and self._first_obstacle(self.turned.path(state)) is None:
                poses.append((cost + known.drops.get(cell, 0) * AGAIN, state))
        return [state for _, state in sorted(poses)]

    def _still_free(self, state: int, target: Pos) -> bool:
        """Whether the way on from a pose to `target` would do without the cell that is ahead of the pose."""
        width = self.known.width
        pos = ((state >> 2) % width, (state >> 2) // width)
        dx, dy = STEPS[state & 3]
        cell = (state >> 2) + dx + dy * width
        if (pos[0] + dx, pos[1] + dy) == target:
            return False
        ways = Ways(self.known, self.prices._replace(taken=cell), [(pos, state & 3)])
        found, now = ways.before(target), self.turned.before(target)
        if found is None or now is None:
            return False
        return self._burden(ways.path(found[1])) <= self._burden(self.turned.path(now[1]))

    def _burden(self, states: list[int]) -> int:
        """How many things lie on a way."""
        cells = (self.known.cells[cell] for cell in cells_of(states))
        return sum(what is not None and what.type != "door" for what in cells)

    def _drop_from(self, state: int) -> Intent:
        width = self.known.width
        dx, dy = STEPS[state & 3]
        cell = state >> 2
        return Intent(moves_of(self.ways.path(state)), DROP, (cell % width + dx, cell // width + dy))

    def _beside_door(self, cell: int) -> bool:
        width, cells, seen = self.known.width, self.known.cells, self.known.seen
        near = (cells[cell + step] for step in (1, -1, width, -width) if seen[cell + step])
        return any(what is not None and what.type == "door" for what in near)

    def _harmless(self, cell: int) -> bool:
        """Whether the floor around stays in one piece: going round the cell, free and taken change at most once."""
        width = self.known.width
        ring = []
        for dx, dy in _AROUND:
            i = cell + dx + dy * width
            ring.append(bool(self.known.seen[i]) and is_open(self.known.cells[i]))
        return sum(ring[i] != ring[i - 1] for i in range(8)) <= 2

    def _explore(self) -> Intent | None:
        """Towards the nearest cell that was not seen; where there is none, into boxes."""
        known = self.known

        def unseen(cell: int) -> int | None:
            return None if known.seen[cell] else 0

        found = self.ways.nearest(unseen)
        if found is not None and self._burden(self.ways.path(found[1])):
            found = self.turned.nearest(unseen)  # something has to be moved: which way must not depend on a turn
        box = None
        if found is None or found[0] >= FORBIDDEN:
            box = self._box()
        if box is not None:
            return self._approach_box(box)
        if found is None:
            poses = self._dropping_poses() if known.hand is not None and known.hand.type == "box" else []
            return self._drop_from(poses[0]) if poses else None  # to be opened
        width = known.width
        dx, dy = STEPS[found[1] & 3]
        cell = found[1] >> 2
        return self._travel(found[1], None, (cell % width + dx, cell // width + dy))

    def _box(self) -> Pos | None:
        best: tuple[int, Pos] | None = None
        for pos, cell in self.things:
            if cell.type == "box":
                found = self.ways.before(pos)
                if found is not None and found[0] < FAR and (best is None or found[0] < best[0]):
                    best = (found[0], pos)
        return None if best is None else best[1]

    def _approach_box(self, pos: Pos) -> Intent | None:
        found = self.ways.before(pos)
        return None if found is None else self._travel(found[1], TOGGLE, pos)

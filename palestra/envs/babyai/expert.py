"""Plan the next moves of an expert that uses only the cells it has seen.

The expert replans every turn. It explores the nearest unseen floor until it finds the objects that the mission
mentions. Before it picks up an object to carry, it clears the path of obstacles and locked doors. It drops objects that
it no longer needs on cells where they do not block a path.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from palestra.envs.babyai.fast_levels import DIRECTIONS
from palestra.envs.babyai.level import DROP, PICKUP, TOGGLE
from palestra.envs.babyai.pathfinding import (
    FAR,
    FORBIDDEN,
    OBSTACLE,
    Costs,
    Knowledge,
    Pos,
    ShortestPaths,
    cells_of,
    is_open,
    moves_of,
    turn,
)

PATIENCE = 12  # number of turns after which a carried object may be dropped where it blocks a path
REPEAT_DROP = 12  # extra cost of dropping an object on a cell used before, which prevents endless loops

_RING = ((-1, -1), (0, -1), (1, -1), (1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0))  # the eight neighbors, clockwise


class Intent(NamedTuple):
    """Planned walk, optionally followed by an action on the cell that the agent faces at its end."""

    moves: list[int]
    act: int | None = None
    target: Pos | None = None  # cell to walk to or to face
    through: bool = False  # the action opens a door so that the agent can walk through it


def next_intent(knowledge: Knowledge, mission: Any) -> Intent | None:
    """Return the next plan, or None if nothing is left to try."""
    turned = knowledge.turned()
    intent = _Planner(turned, _active(mission)).decide()
    if intent is None or intent.target is None:
        return intent
    back = -knowledge.first_facing % 4
    return intent._replace(target=turn(intent.target, turned.width, turned.height, back))


def _active(instruction: Any) -> Any:
    """Return the mission clause that must be completed next."""
    kind = type(instruction).__name__
    if kind == "BeforeInstr":
        return _active(instruction.instr_b if instruction.a_done == "success" else instruction.instr_a)
    if kind == "AfterInstr":
        return _active(instruction.instr_a if instruction.b_done == "success" else instruction.instr_b)
    if kind == "AndInstr":
        return _active(instruction.instr_b if instruction.a_done == "success" else instruction.instr_a)
    return instruction


def _matches(what: Any, description: Any) -> bool:
    return any(what is match for match in description.obj_set)


class _Planner:
    def __init__(self, knowledge: Knowledge, clause: Any) -> None:
        self.knowledge = knowledge
        self.clause = clause
        self.kind = type(clause).__name__
        self.things = knowledge.things()
        strict = getattr(clause, "strict", False)
        self.strict_pickup = strict and self.kind == "PickupInstr"  # opening a box, which removes it, is still allowed
        hand = knowledge.hand
        self.costs = Costs(
            doors=FORBIDDEN if strict and self.kind == "OpenInstr" else 0,
            things=FORBIDDEN if self.strict_pickup else 0,
            keys=frozenset(cell.color for _, cell in self.things if cell.type == "key"),
            held=hand.color if hand is not None and hand.type == "key" else None,
            keep=tuple(clause.desc_fixed.obj_set) if self.kind == "PutNextInstr" else (),
        )
        self.paths = ShortestPaths(knowledge, self.costs, [(knowledge.pos, knowledge.facing)])
        self._paths_any_facing: ShortestPaths | None = None
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
        if self.knowledge.hand is not None and _matches(self.knowledge.hand, self.clause.desc):
            return self._put_down(set())  # the mission requires facing the object, not carrying it
        target = self._nearest(self.clause.desc)
        return self._explore() if target is None else self._approach(target, None)

    def _open(self) -> Intent | None:
        best: tuple[int, Pos] | None = None
        for pos, door in self.things:
            if door.type == "door" and _matches(door, self.clause.desc):
                pose = self.paths_any_facing.facing(pos)
                if pose is not None:
                    cost = pose[0] + (2 if door.is_open else 200 if self._lacks_key(door) else 0)
                    if best is None or cost < best[0]:
                        best = (cost, pos)
        if best is None or best[0] >= FORBIDDEN:
            return self._explore() or (None if best is None else self._approach(best[1], TOGGLE))
        door = self.knowledge.at(best[1])
        if self._lacks_key(door):
            return self._unlock(best[1])
        return self._approach(best[1], TOGGLE)

    def _pick_up(self) -> Intent | None:
        target = self._nearest(self.clause.desc)
        hand = self.knowledge.hand
        if target is None:
            if hand is not None and _matches(hand, self.clause.desc):
                return self._put_down(set())  # only a new pickup from the floor completes the clause
            return self._explore()
        return self._take(target)

    def _put_next(self) -> Intent | None:
        move, fixed = self.clause.desc_move, self.clause.desc_fixed
        hand = self.knowledge.hand
        if hand is not None and _matches(hand, fixed) and not _matches(hand, move):
            away = self._nearest(move)
            return self._put_down(set()) if away is None else self._put_down_before(away, set())
        goals = [pos for pos, cell in self.things if _matches(cell, fixed)]
        if hand is not None and _matches(hand, move):
            if not goals:
                return self._explore()
            place = self._place_beside(self.paths, goals, None)
            if place is None:
                return self._explore()
            return self._deliver(place)
        target = self._nearest(move)
        if target is None or not goals:
            return self._explore()
        what = self.knowledge.at(target)
        obstacle, route = self._obstacle_from(target, what, goals)
        if obstacle is not None:
            return self._clear(obstacle, route)
        return self._take(target, route)

    # Steps shared by all clauses

    @property
    def paths_any_facing(self) -> ShortestPaths:
        """Shortest paths that ignore the agent's current direction.

        They prevent the cell chosen for a drop from changing while the agent turns toward it.
        """
        if self._paths_any_facing is None:
            self._paths_any_facing = ShortestPaths(
                self.knowledge, self.costs, [(self.knowledge.pos, d) for d in range(4)]
            )
        return self._paths_any_facing

    def _nearest(self, description: Any) -> Pos | None:
        best: tuple[int, Pos] | None = None
        for pos, cell in self.things:
            if _matches(cell, description):
                pose = self.paths_any_facing.facing(pos)
                if pose is not None and (best is None or pose[0] < best[0]):
                    best = (pose[0], pos)
        return None if best is None else best[1]

    def _take(self, target: Pos, avoid: set[int] | None = None) -> Intent | None:
        """Pick up the object at `target`, after dropping the carried object if there is one."""
        if self.knowledge.hand is not None:
            pose = self.paths_any_facing.facing(target)
            if pose is not None:
                route = self.paths_any_facing.path(pose[1])
                if self._first_obstacle(route) is None:
                    return self._put_down_before(target, avoid or set())
        return self._approach(target, PICKUP)

    def _approach(self, target: Pos, act: int | None) -> Intent | None:
        pose = self.paths.facing(target)
        if pose is None or (pose[0] >= FORBIDDEN and self._may_find_another_way()):
            return self._explore()
        return self._travel(pose[1], act, target)

    def _travel(self, state: int, act: int | None, target: Pos) -> Intent | None:
        """Walk to a pose, or deal with the first obstacle if the path is blocked."""
        states = self.paths.path(state)
        blocked = self._first_obstacle(states)
        if blocked is None:
            return Intent(moves_of(states), act, target)
        number, pos = blocked
        cell = self.knowledge.at(pos)
        if cell.type == "door":
            if self._lacks_key(cell):
                return self._unlock(pos)
            return Intent(moves_of(states[:number]), TOGGLE, pos, through=True)
        if self.strict_pickup and cell.type == "box":
            return Intent(moves_of(states[:number]), TOGGLE, pos)
        if self.knowledge.hand is not None:
            return self._put_down_before(target, set())
        return Intent(moves_of(states[:number]), PICKUP, pos)

    def _first_obstacle(self, states: list[int], removed: Any = None) -> tuple[int, Pos] | None:
        width = self.knowledge.width
        last = states[0] >> 2
        for number, state in enumerate(states):
            cell = state >> 2
            if cell != last:
                last = cell
                what = self.knowledge.cells[cell]
                if not is_open(what) and what is not removed:
                    return number, (cell % width, cell // width)
        return None

    def _lacks_key(self, door: Any) -> bool:
        return bool(door.type == "door" and door.is_locked and door.color != self.costs.held)

    def _unlock(self, door_pos: Pos) -> Intent | None:
        """Fetch the key to a locked door. Once the agent carries the key, the door is treated like an unlocked one."""
        if door_pos in self.unlocking:
            return None
        self.unlocking.add(door_pos)
        door = self.knowledge.at(door_pos)
        best: tuple[int, Pos] | None = None
        for pos, cell in self.things:
            if cell.type == "key" and cell.color == door.color:
                pose = self.paths_any_facing.facing(pos)
                if pose is not None and (best is None or pose[0] < best[0]):
                    best = (pose[0], pos)
        if best is None:
            return self._explore()
        key = self.knowledge.at(best[1])
        paths = ShortestPaths(self.knowledge, self.costs._replace(removed=key), [(best[1], d) for d in range(4)])
        pose = paths.facing(door_pos)
        if pose is None:
            return self._take(best[1])
        states = paths.path(pose[1])
        blocked = self._first_obstacle(states, key)
        if blocked is not None:
            cell = self.knowledge.at(blocked[1])
            if cell.type != "door" or self._lacks_key(cell):
                return self._clear(blocked[1], cells_of(states))
        return self._take(best[1], cells_of(states))

    def _clear(self, pos: Pos, route: set[int]) -> Intent | None:
        """Remove an obstacle from a route that the agent will later walk while carrying an object."""
        what = self.knowledge.at(pos)
        if what.type == "door":
            return self._unlock(pos)
        return self._take(pos, route)

    def _place_beside(self, paths: ShortestPaths, goals: list[Pos], removed: Any) -> int | None:
        """Return the cheapest pose that faces a cell next to one of `goals`.

        If an object lies on that cell, moving it adds to the cost.
        """
        width = self.knowledge.width
        steps = [dx + dy * width for dx, dy in DIRECTIONS]
        beside = {y * width + x + step for x, y in goals for step in steps}
        cells, seen = self.knowledge.cells, self.knowledge.seen

        def wanted(cell: int) -> int | None:
            if cell not in beside or not seen[cell]:
                return None
            what = cells[cell]
            if what is None or what is removed:
                return 0
            return None if what.type in ("wall", "door") else OBSTACLE

        pose = paths.nearest(wanted)
        return None if pose is None else pose[1]

    def _deliver(self, state: int) -> Intent | None:
        """Carry the object to the given pose and drop it on the cell in front."""
        width = self.knowledge.width
        dx, dy = DIRECTIONS[state & 3]
        cell = state >> 2
        ahead = (cell % width + dx, cell // width + dy)
        states = self.paths.path(state)
        if self.knowledge.at(ahead) is not None or self._first_obstacle(states) is not None:
            blocked = self._first_obstacle(states)
            if (
                blocked is not None
                and self.knowledge.at(blocked[1]).type == "door"
                and not self._lacks_key(self.knowledge.at(blocked[1]))
            ):
                return self._travel(state, None, ahead)
            return self._put_down_before(ahead, set())
        return Intent(moves_of(states), DROP, ahead)

    def _obstacle_from(self, start: Pos, what: Any, goals: list[Pos]) -> tuple[Pos | None, set[int]]:
        """Return the first obstacle on the path from `start` to a cell next to a goal, and the cells of that path.

        The agent carries `what` along this path. The obstacle is None if the path is free.
        """
        paths = ShortestPaths(self.knowledge, self.costs._replace(removed=what), [(start, d) for d in range(4)])
        state = self._place_beside(paths, goals, what)
        if state is None:
            return None, set()
        states = paths.path(state)
        width = self.knowledge.width
        dx, dy = DIRECTIONS[state & 3]
        ahead = (state >> 2) % width + dx, (state >> 2) // width + dy
        route = cells_of(states) | {ahead[1] * width + ahead[0]}
        blocked = self._first_obstacle(states, what)
        if blocked is not None:
            cell = self.knowledge.at(blocked[1])
            return (None if cell.type == "door" and not self._lacks_key(cell) else blocked[1]), route
        there = self.knowledge.at(ahead)
        return (ahead if there is not None and there is not what else None), route

    def _put_down_before(self, target: Pos, avoid: set[int]) -> Intent | None:
        """Drop the carried object on a cell that is not on the path to `target`."""
        pose = self.paths_any_facing.facing(target)
        route = set() if pose is None else cells_of(self.paths_any_facing.path(pose[1]))
        return self._put_down(avoid | route | {target[1] * self.knowledge.width + target[0]}, target)

    def _put_down(self, avoid: set[int], target: Pos | None = None) -> Intent | None:
        """Drop the carried object on a nearby cell where it blocks no path."""
        knowledge = self.knowledge
        for careful in (3, 2, 1) if knowledge.held <= PATIENCE else ():

            def wanted(cell: int, careful: int = careful) -> int | None:
                if not knowledge.seen[cell] or knowledge.cells[cell] is not None or cell in avoid:
                    return None
                if careful > 1 and self._beside_door(cell):
                    return None
                if careful > 2 and not self._keeps_floor_connected(cell):
                    return None
                return knowledge.drops.get(cell, 0) * REPEAT_DROP

            pose = self.paths_any_facing.nearest(wanted)
            if pose is not None and self._first_obstacle(self.paths_any_facing.path(pose[1])) is None:
                return self._drop_from(pose[1])
        poses = self._dropping_poses()
        for state in poses:
            if target is None or self._keeps_path_clear(state, target):
                return self._drop_from(state)
        return self._drop_from(poses[0]) if poses else self._explore()

    def _dropping_poses(self) -> list[int]:
        """Return the reachable poses that face empty floor, nearest first."""
        knowledge, steps = self.knowledge, [dx + dy * self.knowledge.width for dx, dy in DIRECTIONS]
        poses = []
        for state, cost in enumerate(self.paths_any_facing.cost):
            cell = (state >> 2) + steps[state & 3]
            free = cost < OBSTACLE and knowledge.seen[cell] and knowledge.cells[cell] is None
            if free and self._first_obstacle(self.paths_any_facing.path(state)) is None:
                poses.append((cost + knowledge.drops.get(cell, 0) * REPEAT_DROP, state))
        return [state for _, state in sorted(poses)]

    def _keeps_path_clear(self, state: int, target: Pos) -> bool:
        """Return whether an object dropped in front of a pose adds no obstacle to the path to `target`."""
        width = self.knowledge.width
        pos = ((state >> 2) % width, (state >> 2) // width)
        dx, dy = DIRECTIONS[state & 3]
        cell = (state >> 2) + dx + dy * width
        if (pos[0] + dx, pos[1] + dy) == target:
            return False
        paths = ShortestPaths(self.knowledge, self.costs._replace(blocked_cell=cell), [(pos, state & 3)])
        pose, now = paths.facing(target), self.paths_any_facing.facing(target)
        if pose is None or now is None:
            return False
        return self._count_objects(paths.path(pose[1])) <= self._count_objects(self.paths_any_facing.path(now[1]))

    def _count_objects(self, states: list[int]) -> int:
        """Return the number of objects on a path."""
        cells = (self.knowledge.cells[cell] for cell in cells_of(states))
        return sum(what is not None and what.type != "door" for what in cells)

    def _drop_from(self, state: int) -> Intent:
        width = self.knowledge.width
        dx, dy = DIRECTIONS[state & 3]
        cell = state >> 2
        return Intent(moves_of(self.paths.path(state)), DROP, (cell % width + dx, cell // width + dy))

    def _beside_door(self, cell: int) -> bool:
        width, cells, seen = self.knowledge.width, self.knowledge.cells, self.knowledge.seen
        beside = (cells[cell + step] for step in (1, -1, width, -width) if seen[cell + step])
        return any(what is not None and what.type == "door" for what in beside)

    def _keeps_floor_connected(self, cell: int) -> bool:
        """Return whether the floor stays connected if the cell is blocked.

        This holds if the free cells among its eight neighbors form at most one contiguous run.
        """
        width = self.knowledge.width
        ring = []
        for dx, dy in _RING:
            i = cell + dx + dy * width
            ring.append(bool(self.knowledge.seen[i]) and is_open(self.knowledge.cells[i]))
        return sum(ring[i] != ring[i - 1] for i in range(8)) <= 2

    def _unseen(self, cell: int) -> int | None:
        return None if self.knowledge.seen[cell] else 0

    def _may_find_another_way(self) -> bool:
        """Return whether there is an unseen cell or a box to open that can be reached without breaking a rule."""
        pose = self.paths.nearest(self._unseen)
        if pose is not None and pose[0] < FORBIDDEN:
            return True
        box = self._box()
        pose = None if box is None else self.paths.facing(box)
        return pose is not None and pose[0] < FORBIDDEN

    def _explore(self) -> Intent | None:
        """Go toward the nearest unseen cell; if there is none, open boxes."""
        knowledge = self.knowledge
        pose = self.paths.nearest(self._unseen)
        if pose is not None and self._count_objects(self.paths.path(pose[1])):
            # An obstacle must be moved first, so the current direction does not matter.
            pose = self.paths_any_facing.nearest(self._unseen)
        box = None
        if pose is None or pose[0] >= FORBIDDEN:
            box = self._box()
        if box is not None:
            return self._approach_box(box)
        if pose is None:
            poses = self._dropping_poses() if knowledge.hand is not None and knowledge.hand.type == "box" else []
            return self._drop_from(poses[0]) if poses else None  # a carried box must be dropped before it can be opened
        width = knowledge.width
        dx, dy = DIRECTIONS[pose[1] & 3]
        cell = pose[1] >> 2
        return self._travel(pose[1], None, (cell % width + dx, cell // width + dy))

    def _box(self) -> Pos | None:
        best: tuple[int, Pos] | None = None
        for pos, cell in self.things:
            if cell.type == "box":
                pose = self.paths.facing(pos)
                if pose is not None and pose[0] < FAR and (best is None or pose[0] < best[0]):
                    best = (pose[0], pos)
        return None if best is None else best[1]

    def _approach_box(self, pos: Pos) -> Intent | None:
        pose = self.paths.facing(pos)
        return None if pose is None else self._travel(pose[1], TOGGLE, pos)

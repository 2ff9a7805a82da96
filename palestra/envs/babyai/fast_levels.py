"""Subclasses of minigrid's levels that generate the same levels as minigrid, five times as fast.

minigrid spends most of a reset building walls cell by cell (each a new object with checked coordinates), requesting
random numbers from numpy one at a time, and scanning all cells for objects. These subclasses share one wall object,
cache a grid's objects, and take random numbers from `BatchedGenerator`. A test compares the generated levels with
minigrid's levels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

from palestra.envs.babyai.bitgrid import Placed, flood_fill, free_cells, neighbors, objects_on
from palestra.optional import require

DIRECTIONS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # in minigrid's order: clockwise from east

_classes: dict[str, type] = {}
# These levels compare integers with `is`, which is always false for numpy integers.
_BY_IDENTITY = {"GoToImpUnlock", "Unlock"}


class _UniqueInt(int):
    """An int for which `is` comparisons with other ints are always false."""


def fast_level_class(module: str, name: str) -> type:
    """Return the fast subclass of one of minigrid's level classes.

    The module's `__getattr__` finds a subclass by its name, so that episodes can be pickled.
    """
    key = f"{module.replace('.', '/')}:{name}"
    level_class = _classes.get(key)
    if level_class is None:
        base = getattr(require(module, extra="babyai"), name)
        methods = _methods()
        if name in _BY_IDENTITY:
            methods["_rand_int"] = _rand_unique_int
        level_class = type(key, (base,), {**methods, "__module__": __name__, "__qualname__": key})
        level_class = _classes.setdefault(key, level_class)  # another thread may have created the class first
    return level_class


def __getattr__(name: str) -> Any:
    if ":" not in name:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, level = name.partition(":")
    return fast_level_class(module.replace("/", "."), level)


def shared_wall() -> Any:
    """Return the wall object that all wall cells share."""
    return _grid_class()[1]


_grids: list[tuple[type, Any]] = []


def _grid_class() -> tuple[type, Any]:
    if not _grids:
        grid: Any = require("minigrid.core.grid", extra="babyai").Grid
        wall = require("minigrid.core.world_object", extra="babyai").Wall()

        def get(self: Any, i: int, j: int) -> Any:
            return self.grid[j * self.width + i]

        def put(self: Any, i: int, j: int, v: Any) -> None:
            self.grid[j * self.width + i] = v
            self.things = None

        def wall_rect(self: Any, x: int, y: int, w: int, h: int) -> None:
            width, cells = self.width, self.grid
            top, bottom = y * width + x, (y + h - 1) * width + x
            cells[top : top + w] = cells[bottom : bottom + w] = [wall] * w
            cells[top:bottom:width] = cells[top + w - 1 : bottom + w - 1 : width] = [wall] * (h - 1)
            self.things = None

        names = {"get": get, "set": put, "wall_rect": wall_rect, "wall": wall, "things": None}
        names |= {"__module__": __name__, "__qualname__": ":grid"}
        _grids.append((type(":grid", (grid,), names), wall))
        _classes[":grid"] = _grids[0][0]
    return _grids[0]


@cache
def _walls(width: int, height: int, stride: int) -> list[Any]:
    """Return the cells in a grid of rooms without doors. The list is cached, so callers must copy it."""
    wall = shared_wall()
    return [wall if x % stride == 0 or y % stride == 0 else None for y in range(height) for x in range(width)]


def _has_start(grid: Any, room: Any, directions: Iterable[int]) -> bool:
    """Return whether an agent in a room can face a wall or a free cell."""
    (left, upper), (wide, high) = room.top, room.size
    free = ((x, y) for y in range(upper, upper + high) for x in range(left, left + wide) if grid.get(x, y) is None)
    fronts = (grid.get(x + dx, y + dy) for x, y in free for dx, dy in (DIRECTIONS[d] for d in directions))
    return any(front is None or front.type == "wall" for front in fronts)


def _join(room: Any, joined: set[int]) -> None:
    """Add `room` and all rooms connected to it through doors, locked or not, to `joined`."""
    joined.add(id(room))
    edge = [room]
    while edge:
        room = edge.pop()
        for door, neighbor in zip(room.doors, room.neighbors, strict=True):
            if door and id(neighbor) not in joined:
                joined.add(id(neighbor))
                edge.append(neighbor)


def _rand_unique_int(self: Any, low: int, high: int) -> int:
    return _UniqueInt(self.generator.integers(low, high))


def find_matching_objs(self: Any, env: Any, use_location: bool = True) -> tuple[list[Any], list[tuple[int, int]]]:
    """Return the same objects in the same order as `ObjDesc.find_matching_objs`, without one call per cell."""
    env = env.unwrapped
    kind, color = self.type, self.color
    matches = _with_walls(env.grid) if kind is None and color in (None, "grey") else objects_on(env.grid)
    if kind is not None:
        matches = [match for match in matches if match[2].type == kind]
    if color is not None:
        matches = [match for match in matches if match[2].color == color]
    if not use_location:
        matches = [match for match in matches if any(match[2] is obj for obj in self.obj_set)]
    elif self.loc is not None:
        room = env.room_from_pos(*env.agent_pos)
        (x0, y0), (dx, dy) = env.agent_pos, DIRECTIONS[int(env.agent_dir)]
        ahead, aside = {"front": (1, 0), "behind": (-1, 0), "right": (0, 1), "left": (0, -1)}[self.loc]
        matches = [
            (x, y, cell)
            for x, y, cell in matches
            if room.pos_inside(x, y)
            and ahead * ((x - x0) * dx + (y - y0) * dy) + aside * ((y - y0) * dx - (x - x0) * dy) > 0
        ]
    if use_location:
        self.obj_set = [match[2] for match in matches]
    self.obj_poss = [match[:2] for match in matches]
    return self.obj_set, self.obj_poss


def _with_walls(grid: Any) -> list[Placed]:
    """Return all objects column by column, including walls, which "a grey object" also matches."""
    width = grid.width
    columns = (enumerate(grid.grid[x::width]) for x in range(width))
    return [(x, y, cell) for x, column in enumerate(columns) for y, cell in column if cell is not None]


def _methods() -> dict[str, Any]:
    fast_grid, _ = _grid_class()
    require("minigrid.envs.babyai.core.verifier", extra="babyai").ObjDesc.find_matching_objs = find_matching_objs
    colors = require("minigrid.core.constants", extra="babyai").COLOR_NAMES
    rejected = require("minigrid.envs.babyai.core.roomgrid_level", extra="babyai").RejectSampling
    rooms: Any = require("minigrid.core.roomgrid", extra="babyai")
    near_agent, new_room = rooms.reject_next_to, rooms.Room
    objects = require("minigrid.core.world_object", extra="babyai")
    constructors = {"key": objects.Key, "ball": objects.Ball, "box": objects.Box}
    kinds = list(constructors)

    def get_grid(self: Any) -> Any:
        return self._grid

    def set_grid(self: Any, grid: Any) -> None:
        grid.__class__ = fast_grid  # convert the empty grid that minigrid has just created
        self._grid = grid

    def gen_grid(self: Any, width: int, height: int) -> None:
        while True:
            build_rooms(self, width, height)
            try:
                self.gen_mission()
                self.validate_instrs(self.instrs)
            except (RecursionError, rejected):
                continue  # generate another level, because minigrid rejected this one
            break
        self.surface = self.mission = self.instrs.surface(self)

    def build_rooms(self: Any, width: int, height: int) -> None:
        draw, columns, rows, size = self.generator.integers, self.num_cols, self.num_rows, self.room_size
        stride = size - 1  # rooms share their walls
        grid = self.grid = fast_grid(width, height)
        grid.grid = _walls(width, height, stride)[:]
        rooms_by_row = [[new_room((i * stride, j * stride), (size, size)) for i in range(columns)] for j in range(rows)]
        self.room_grid = rooms_by_row
        for j, row in enumerate(rooms_by_row):
            for i, room in enumerate(row):  # doors and neighbors are stored in the order right, down, left, up
                x, y = room.top
                neighbors, door_pos = room.neighbors, room.door_pos
                if i < columns - 1:
                    neighbors[0] = row[i + 1]
                    door_pos[0] = (x + stride, draw(y + 1, y + stride))
                if j < rows - 1:
                    neighbors[1] = rooms_by_row[j + 1][i]
                    door_pos[1] = (draw(x + 1, x + stride), y + stride)
                if i > 0:
                    neighbors[2] = row[i - 1]
                    door_pos[2] = row[i - 1].door_pos[0]
                if j > 0:
                    neighbors[3] = rooms_by_row[j - 1][i]
                    door_pos[3] = rooms_by_row[j - 1][i].door_pos[1]
        # The agent starts in the middle, facing east.
        self.agent_pos = (columns // 2 * stride + size // 2, rows // 2 * stride + size // 2)
        self.agent_dir = 0

    def rand_int(self: Any, low: int, high: int) -> int:
        return self.generator.integers(low, high)  # type: ignore[no-any-return]

    def rand_float(self: Any, low: float, high: float) -> float:
        return self.generator.uniform(low, high)  # type: ignore[no-any-return]

    def rand_bool(self: Any) -> bool:
        return self.generator.integers(0, 2) == 0  # type: ignore[no-any-return]

    def rand_pos(self: Any, x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
        return self.generator.integers(x_low, x_high), self.generator.integers(y_low, y_high)

    def rand_elem(self: Any, iterable: Any) -> Any:
        options = iterable if isinstance(iterable, (list, tuple)) else list(iterable)
        return options[self.generator.integers(0, len(options))]

    def check_objs_reachable(self: Any, raise_exc: bool = True) -> bool:
        grid, width = self.grid, self.grid.width
        things = objects_on(grid)
        free = free_cells(grid)
        for x, y, cell in things:
            if cell.type == "door":
                free |= 1 << y * width + x
        reached = flood_fill(1 << int(self.agent_pos[1]) * width + int(self.agent_pos[0]), free, width)
        reached |= neighbors(reached, width)
        unreachable = any(not reached >> y * width + x & 1 for x, y, _ in things)
        if unreachable and raise_exc:
            raise rejected("unreachable object")
        return not unreachable

    def place_obj(
        self: Any, obj: Any, top: Any = None, size: Any = None, reject_fn: Any = None, max_tries: float = math.inf
    ) -> tuple[int, int]:
        grid, draw = self.grid, self.generator.integers_below
        width, height, cells = grid.width, grid.height, grid.grid
        left, upper = (0, 0) if top is None else (max(top[0], 0), max(top[1], 0))
        wide, high = (width, height) if size is None else size
        wide, high = min(wide, width - left), min(high, height - upper)
        x0, y0 = int(self.agent_pos[0]), int(self.agent_pos[1])
        distance = 1  # minimum distance from the agent
        if reject_fn is near_agent:
            reject_fn, distance = None, 2
        tries = 0
        while True:
            if tries > max_tries:
                raise RecursionError("no free place was found")
            tries += 1
            x, y = draw(wide, high)
            x += left
            y += upper
            if cells[y * width + x] is None and abs(x - x0) + abs(y - y0) >= distance:
                pos = (x, y)
                if reject_fn is None or not reject_fn(self, pos):
                    break
        if obj is not None:
            cells[y * width + x] = obj
            grid.things = None
            obj.init_pos = obj.cur_pos = pos
        return pos

    def add_object(
        self: Any, i: int, j: int, kind: str | None = None, color: str | None = None
    ) -> tuple[Any, tuple[int, int]]:
        if kind is None:
            kind = rand_elem(self, kinds)
        if color is None:
            color = rand_elem(self, colors)
        room, thing = self.room_grid[j][i], constructors[kind](color)
        pos = place_obj(self, thing, room.top, room.size, near_agent, 1000)
        room.objs.append(thing)
        return thing, pos

    def add_distractors(
        self: Any, i: int | None = None, j: int | None = None, num_distractors: int = 10, all_unique: bool = True
    ) -> list[Any]:
        generator = self.generator
        taken: set[tuple[str, str]] = set()
        if all_unique:
            taken = {(thing.type, thing.color) for row in self.room_grid for room in row for thing in room.objs}
        added: list[Any] = []
        while len(added) < num_distractors:
            n, m = generator.integers_below(len(colors), len(kinds))
            color, kind = colors[n], kinds[m]
            if all_unique:
                if (kind, color) in taken:
                    continue
                taken.add((kind, color))
            column = generator.integers(0, self.num_cols) if i is None else i
            row = generator.integers(0, self.num_rows) if j is None else j
            added.append(add_object(self, column, row, kind, color)[0])
        return added

    def place_agent(self: Any, i: int | None = None, j: int | None = None, rand_dir: bool = True) -> tuple[int, int]:
        draw, grid = self.generator.integers, self.grid
        column = draw(0, self.num_cols) if i is None else i
        row = draw(0, self.num_rows) if j is None else j
        room = self.room_grid[row][column]
        if not _has_start(grid, room, range(4) if rand_dir else (self.agent_dir,)):
            raise RecursionError("the agent would face an object everywhere in the room")  # minigrid would not end
        while True:  # the agent must not start facing an object
            self.agent_pos = (-1, -1)
            self.agent_pos = x, y = place_obj(self, None, room.top, room.size, max_tries=1000)
            if rand_dir:
                self.agent_dir = draw(0, 4)
            dx, dy = DIRECTIONS[self.agent_dir]
            front = grid.get(x + dx, y + dy)
            if front is None or front.type == "wall":
                return x, y

    def connect_all(self: Any, door_colors: Any = colors, max_itrs: int = 5000) -> list[Any]:
        draw, rooms, rows, columns = self.generator.integers_below, self.room_grid, self.num_rows, self.num_cols
        added: list[Any] = []
        joined: set[int] = set()
        _join(self.room_from_pos(*self.agent_pos), joined)
        for _ in range(max_itrs + 1):
            if len(joined) == rows * columns:
                return added
            column, row, side = draw(columns, rows, 4)
            room = rooms[row][column]
            if not room.door_pos[side] or room.doors[side] or room.locked:
                continue
            neighbor = room.neighbors[side]
            if neighbor.locked:
                continue
            added.append(self.add_door(column, row, side, rand_elem(self, door_colors), False)[0])
            if (id(room) in joined) != (id(neighbor) in joined):
                _join(neighbor if id(room) in joined else room, joined)
        raise RecursionError("the rooms could not be connected")

    return {
        "_gen_grid": gen_grid,
        "connect_all": connect_all,
        "grid": property(get_grid, set_grid),
        "_rand_int": rand_int,
        "_rand_float": rand_float,
        "_rand_bool": rand_bool,
        "_rand_pos": rand_pos,
        "_rand_elem": rand_elem,
        "add_object": add_object,
        "add_distractors": add_distractors,
        "place_agent": place_agent,
        "place_obj": place_obj,
        "check_objs_reachable": check_objs_reachable,
        "gen_obs": lambda _: None,  # computing minigrid's observation arrays takes longer than the rest of a step
    }

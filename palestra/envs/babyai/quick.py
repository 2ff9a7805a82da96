"""A minigrid level's class -> the same level, drawn from the same numbers in a quarter of the time.

Most of an episode's start is minigrid laying walls cell by cell, each a new object with checked coordinates, and asking
numpy for one number at a time. Here all walls are one, what searches the grid reads its list, and numbers are taken
from the generator by the hundred, by numpy's own rules. A test compares the levels with minigrid's.
"""

from __future__ import annotations

import math
from typing import Any

from palestra.optional import require

STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # the four directions as minigrid numbers them: clockwise from east

_BATCH = 128
_32 = (1 << 32) - 1
_quick: dict[str, type] = {}
_BY_IDENTITY = {"GoToImpUnlock", "Unlock"}  # levels that compare numbers with `is`, which is never so for numpy's


class _Apart(int):
    """A number that is no other, be it equal."""


def quick(module: str, name: str) -> type:
    """The quick class of a level's class; it can be found again by name, so that its episodes pickle."""
    key = f"{module.replace('.', '/')}:{name}"
    found = _quick.get(key)
    if found is None:
        base = getattr(require(module, extra="babyai"), name)
        methods = _methods()
        if name in _BY_IDENTITY:
            methods["_rand_int"] = _rand_apart
        found = type(key, (base,), {**methods, "__module__": __name__, "__qualname__": key})
        found = _quick.setdefault(key, found)  # another thread may have been first
    return found


class Draws:
    """What `numpy.random.default_rng(seed)` draws, number for number, as plain ints and floats."""

    def __init__(self, seed: int) -> None:
        self._bits: Any = require("numpy.random", extra="babyai").PCG64(seed)
        self._raw: list[int] = []
        self._half: int | None = None  # numpy uses both halves of 64 bits, the lower one first

    def _next(self) -> int:
        if not self._raw:
            self._raw = self._bits.random_raw(_BATCH).tolist()
            self._raw.reverse()
        return self._raw.pop()

    def integers(self, low: int, high: int) -> int:
        """From `low` up to `high`, which is left out: Lemire's multiplication with rejection, as numpy does it."""
        span = high - low
        if span <= 1:
            return low
        while True:
            half = self._half
            if half is None:
                raw = self._next()
                half, self._half = raw & _32, raw >> 32
            else:
                self._half = None
            product = half * span
            rest = product & _32
            if rest >= span or rest >= (1 << 32) % span:
                return low + (product >> 32)

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * ((self._next() >> 11) * 2.0**-53)


def __getattr__(name: str) -> Any:
    if ":" not in name:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, level = name.partition(":")
    return quick(module.replace("/", "."), level)


def the_wall() -> Any:
    """The one that stands for all."""
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

        def wall_rect(self: Any, x: int, y: int, w: int, h: int) -> None:
            width, cells = self.width, self.grid
            top, bottom = y * width + x, (y + h - 1) * width + x
            cells[top : top + w] = cells[bottom : bottom + w] = [wall] * w
            for left in range(top, bottom, width):
                cells[left] = cells[left + w - 1] = wall

        names = {"get": get, "set": put, "wall_rect": wall_rect, "__module__": __name__, "__qualname__": ":grid"}
        _grids.append((type(":grid", (grid,), names), wall))
        _quick[":grid"] = _grids[0][0]
    return _grids[0]


def _rooms_from(start: Any) -> int:
    """How many rooms can be come to through doors, locked or not."""
    reached, edge = {id(start)}, [start]
    while edge:
        room = edge.pop()
        for door, neighbor in zip(room.doors, room.neighbors, strict=True):
            if door and id(neighbor) not in reached:
                reached.add(id(neighbor))
                edge.append(neighbor)
    return len(reached)


def _rand_apart(self: Any, low: int, high: int) -> int:
    return _Apart(self.draws.integers(low, high))


def find_matching_objs(self: Any, env: Any, use_location: bool = True) -> tuple[list[Any], list[tuple[int, int]]]:
    """Instead of `ObjDesc.find_matching_objs`: the same things in the same order, without a call for every cell."""
    env = env.unwrapped
    grid = env.grid
    width = grid.width
    kind, color = self.type, self.color
    walls = kind is None and color in (None, "grey")  # "a grey object" means walls, too
    wall = None if walls else the_wall()
    found = [
        (i % width, i // width, cell)
        for i, cell in enumerate(grid.grid)
        if cell is not None
        and cell is not wall
        and (kind is None or cell.type == kind)
        and (color is None or cell.color == color)
    ]
    if not use_location:
        found = [one for one in found if any(one[2] is known for known in self.obj_set)]
    elif self.loc is not None:
        room = env.room_from_pos(*env.agent_pos)
        (x0, y0), (dx, dy) = env.agent_pos, STEPS[int(env.agent_dir)]
        ahead, aside = {"front": (1, 0), "behind": (-1, 0), "right": (0, 1), "left": (0, -1)}[self.loc]
        found = [
            (x, y, cell)
            for x, y, cell in found
            if room.pos_inside(x, y)
            and ahead * ((x - x0) * dx + (y - y0) * dy) + aside * ((y - y0) * dx - (x - x0) * dy) > 0
        ]
    found.sort(key=lambda one: one[:2])  # column by column
    if use_location:
        self.obj_set = [cell for _, _, cell in found]
    self.obj_poss = [(x, y) for x, y, _ in found]
    return self.obj_set, self.obj_poss


def _methods() -> dict[str, Any]:
    quick_grid, _ = _grid_class()
    require("minigrid.envs.babyai.core.verifier", extra="babyai").ObjDesc.find_matching_objs = find_matching_objs
    colors = require("minigrid.core.constants", extra="babyai").COLOR_NAMES
    rejected = require("minigrid.envs.babyai.core.roomgrid_level", extra="babyai").RejectSampling

    def get_grid(self: Any) -> Any:
        return self._grid

    def set_grid(self: Any, grid: Any) -> None:
        grid.__class__ = quick_grid  # minigrid makes its own, empty
        self._grid = grid

    def rand_int(self: Any, low: int, high: int) -> int:
        return self.draws.integers(low, high)  # type: ignore[no-any-return]

    def rand_float(self: Any, low: float, high: float) -> float:
        return self.draws.uniform(low, high)  # type: ignore[no-any-return]

    def rand_bool(self: Any) -> bool:
        return self.draws.integers(0, 2) == 0  # type: ignore[no-any-return]

    def rand_pos(self: Any, x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
        return self.draws.integers(x_low, x_high), self.draws.integers(y_low, y_high)

    def check_objs_reachable(self: Any, raise_exc: bool = True) -> bool:
        width, cells = self.grid.width, self.grid.grid
        start = int(self.agent_pos[1]) * width + int(self.agent_pos[0])
        reached = bytearray(len(cells))
        reached[start] = 1
        edge = [start]
        wall = the_wall()
        while edge:
            here = edge.pop()
            for beside in (here + 1, here - 1, here + width, here - width):
                cell = cells[beside]
                if cell is not wall and not reached[beside]:
                    reached[beside] = 1
                    if cell is None or cell.type == "door":
                        edge.append(beside)
        apart = any(cell is not None and cell is not wall and not reached[i] for i, cell in enumerate(cells))
        if apart and raise_exc:
            raise rejected("unreachable object")
        return not apart

    def place_obj(
        self: Any, obj: Any, top: Any = None, size: Any = None, reject_fn: Any = None, max_tries: float = math.inf
    ) -> tuple[int, int]:
        width, height, cells, draw = self.grid.width, self.grid.height, self.grid.grid, self.draws.integers
        left, upper = (0, 0) if top is None else (max(top[0], 0), max(top[1], 0))
        wide, high = (width, height) if size is None else size
        right, lower = min(left + wide, width), min(upper + high, height)
        agent = (int(self.agent_pos[0]), int(self.agent_pos[1]))
        tries = 0
        while True:
            if tries > max_tries:
                raise RecursionError("no free place was found")
            tries += 1
            pos = (draw(left, right), draw(upper, lower))
            if cells[pos[1] * width + pos[0]] is None and pos != agent and not (reject_fn and reject_fn(self, pos)):
                break
        cells[pos[1] * width + pos[0]] = obj
        if obj is not None:
            obj.init_pos = obj.cur_pos = pos
        return pos

    def connect_all(self: Any, door_colors: Any = colors, max_itrs: int = 5000) -> list[Any]:
        draw = self.draws.integers
        added: list[Any] = []
        start = self.room_from_pos(*self.agent_pos)
        missing = True
        for _ in range(max_itrs + 1):
            if missing and _rooms_from(start) == self.num_rows * self.num_cols:
                return added
            missing = False
            column, row, side = draw(0, self.num_cols), draw(0, self.num_rows), draw(0, 4)
            room = self.room_grid[row][column]
            if room.door_pos[side] and not room.doors[side] and not room.locked and not room.neighbors[side].locked:
                added.append(self.add_door(column, row, side, self._rand_elem(door_colors), False)[0])
                missing = True  # only a new door can have connected what was not
        raise RecursionError("the rooms could not be connected")

    return {
        "connect_all": connect_all,
        "grid": property(get_grid, set_grid),
        "_rand_int": rand_int,
        "_rand_float": rand_float,
        "_rand_bool": rand_bool,
        "_rand_pos": rand_pos,
        "place_obj": place_obj,
        "check_objs_reachable": check_objs_reachable,
        "gen_obs": lambda _: None,  # its arrays cost more than all the rest of a move
    }

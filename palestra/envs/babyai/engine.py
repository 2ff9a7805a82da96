"""A level's name -> minigrid's own level: generated, stepped and judged by it, silent and cheap to copy.

minigrid draws the rooms and decides what fulfils a mission. What it does besides is left out: its observation arrays
(a view is computed in view.py at a fraction of the price), its printing, and its own limit of moves. Missions that
cannot be fulfilled are drawn again, and a strict second clause is not held against the move that completed the first.
"""

from __future__ import annotations

import copy
import os
from typing import Any

from palestra.envs.babyai.draws import Draws
from palestra.envs.babyai.quick import quick, the_wall
from palestra.envs.babyai.solvable import solvable
from palestra.errors import EnvFailed
from palestra.optional import require

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)  # minigrid's numbers of the moves


class World:
    """One level and its running episode."""

    def __init__(self, level: str) -> None:
        self.level = level
        self.engine = _build(level)
        self.moves = 0

    def start(self, seed: int) -> None:
        """Draw the rooms and the mission that minigrid draws for `seed`."""
        engine = self.engine
        try:
            engine.draws = Draws(seed)
            engine.reset()
            while not solvable(engine):
                engine.reset()  # goes on drawing
        except Exception as err:
            raise EnvFailed(f"minigrid could not draw {self.level} for seed {seed}: {err!r}") from err
        engine.draws = None  # nothing is drawn after the start
        engine.grid.things = None  # nor is more looked for than once in a while, and copies should be small
        engine.agent_pos = (int(engine.agent_pos[0]), int(engine.agent_pos[1]))
        engine.agent_dir = int(engine.agent_dir)
        self.width: int = engine.width
        self.height: int = engine.height
        self.moves = 0
        self._later = _strict_later(engine.instrs)
        for _, _, second in self._later:
            second.strict = False

    def move(self, action: int) -> str | None:
        """One of minigrid's moves: "solved", "lost", or None where the episode goes on."""
        engine = self.engine
        engine.step_count = 0  # minigrid would cut the episode and pay less than nothing past its limit of moves
        _, reward, over, _, _ = engine.step(action)
        for sequence, first, second in self._later:
            second.strict = getattr(sequence, first) == "success"
        self.moves += 1
        x, y = engine.agent_pos
        engine.agent_pos = (int(x), int(y))
        if not over:
            return None
        return "solved" if reward > 0 else "lost"

    @property
    def mission(self) -> str:
        return str(self.engine.mission)

    @property
    def cells(self) -> list[Any]:
        """What stands where, row by row; None is free floor."""
        cells: list[Any] = self.engine.grid.grid
        return cells

    @property
    def pos(self) -> tuple[int, int]:
        pos: tuple[int, int] = self.engine.agent_pos
        return pos

    @property
    def facing(self) -> int:
        return int(self.engine.agent_dir)

    @property
    def carrying(self) -> Any:
        return self.engine.carrying

    @property
    def discounted(self) -> float:
        """minigrid's reward for a success now: 1 less nine tenths of the share of its move limit that was used."""
        return max(0.0, 1.0 - 0.9 * self.moves / float(self.engine.max_steps))

    def __deepcopy__(self, memo: dict[int, Any]) -> World:
        engine = self.engine
        for same in (the_wall(), engine.observation_space, engine.action_space):
            memo[id(same)] = same
        twin = World.__new__(World)
        memo[id(self)] = twin
        for name, value in self.__dict__.items():
            twin.__dict__[name] = copy.deepcopy(value, memo)
        return twin

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        grid, wall = self.engine.grid, the_wall()
        grid.grid = [wall if cell is not None and cell.type == "wall" else cell for cell in grid.grid]


def _strict_later(instruction: Any) -> list[tuple[Any, str, Any]]:
    """Sequences whose second clause is strict: (sequence, how it notes that the first is done, the second clause).

    minigrid judges the move that completes the first clause by the second one as well, and a strict second clause then
    fails for it: opening one door and then another could not be done at all. So strictness begins a move later.
    """
    kind = type(instruction).__name__
    if kind not in ("BeforeInstr", "AfterInstr"):
        return []
    first, second = ("a_done", instruction.instr_b) if kind == "BeforeInstr" else ("b_done", instruction.instr_a)
    return [(instruction, first, second)] if getattr(second, "strict", False) else []


def _build(level: str) -> Any:
    registry = _minigrid()
    versions = [name for name in registry if name.rpartition("-v")[0] == f"BabyAI-{level}"]
    if not versions:
        raise EnvFailed(f"the installed minigrid has no level BabyAI-{level}")
    spec = registry[max(versions, key=lambda name: int(name.rpartition("-v")[2]))]
    module, _, name = str(spec.entry_point).partition(":")
    return quick(module, name)(**spec.kwargs)


def _silent(*_: object) -> None:
    """Instead of `print`, by which minigrid tells of every draw it rejects."""


def _minigrid() -> Any:
    """Gymnasium's registry, with minigrid's levels in it."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # minigrid imports pygame, which greets on stdout
    require("minigrid", extra="babyai")
    require("minigrid.envs.babyai.core.roomgrid_level", extra="babyai").print = _silent  # type: ignore[attr-defined]
    return require("gymnasium.envs.registration", extra="babyai").registry

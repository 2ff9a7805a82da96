"""Run a minigrid level that prints nothing and can be copied quickly.

minigrid generates the rooms and decides whether a mission is completed. Three of its features are disabled: its
observation arrays (view.py computes a view in a fraction of the time), its printed output, and its limit on moves.
There are three other differences from minigrid. A level whose mission cannot be completed is replaced by a newly
generated level, and so is one with a room in which the agent would face an object everywhere, for which minigrid looks
for a start forever. A strict second clause does not apply to the move that completes the first clause.
"""

from __future__ import annotations

import copy
import os
from typing import Any

from palestra.envs.babyai.fast_levels import fast_level_class, shared_wall
from palestra.envs.babyai.generator import BatchedGenerator
from palestra.envs.babyai.solvable import solvable
from palestra.errors import EnvFailed
from palestra.optional import require

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)  # minigrid's action numbers


class Level:
    """A minigrid level and its current episode."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.engine = _build(name)
        self.moves = 0

    def start(self, seed: int) -> None:
        """Generate the same rooms and the same mission as minigrid for `seed`."""
        engine = self.engine
        try:
            engine.generator = BatchedGenerator(seed)
            engine.reset()
            while not solvable(engine):
                engine.reset()  # the next level comes from the same random generator
        except Exception as err:
            raise EnvFailed(f"minigrid could not generate the level {self.name} for seed {seed}: {err!r}") from err
        engine.generator = None  # no more random numbers are needed, and copies should be small
        engine.grid.things = None
        engine.agent_pos = (int(engine.agent_pos[0]), int(engine.agent_pos[1]))
        engine.agent_dir = int(engine.agent_dir)
        self.width: int = engine.width
        self.height: int = engine.height
        self.moves = 0
        self._strict_sequences = _strict_sequences(engine.instrs)
        for _, _, second in self._strict_sequences:
            second.strict = False

    def move(self, action: int) -> str | None:
        """Take one of minigrid's actions and return "solved", "lost", or None if the episode continues."""
        engine = self.engine
        # Otherwise minigrid would truncate the episode at its own move limit, with a negative reward.
        engine.step_count = 0
        _, reward, over, _, _ = engine.step(action)
        for sequence, first, second in self._strict_sequences:
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
        """Contents of every cell, row by row; None is empty floor."""
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
        """minigrid's reward for completing the mission now: 1 minus 0.9 times the used fraction of its move limit."""
        return max(0.0, 1.0 - 0.9 * self.moves / float(self.engine.max_steps))

    def __deepcopy__(self, memo: dict[int, Any]) -> Level:
        engine = self.engine
        for shared in (shared_wall(), engine.observation_space, engine.action_space):
            memo[id(shared)] = shared
        clone = Level.__new__(Level)
        memo[id(self)] = clone
        for name, value in self.__dict__.items():
            clone.__dict__[name] = copy.deepcopy(value, memo)
        return clone

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        grid, wall = self.engine.grid, shared_wall()
        grid.grid = [wall if cell is not None and cell.type == "wall" else cell for cell in grid.grid]


def _strict_sequences(instruction: Any) -> list[tuple[Any, str, Any]]:
    """Return (sequence, attribute with the result of the first clause, second clause) for each strict second clause.

    minigrid also checks the move that completes the first clause against the second clause. A strict second clause
    would fail immediately, and a mission to open one door and then another could not be completed. Strictness therefore
    starts one move later.
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
        raise EnvFailed(f"the installed minigrid has no level BabyAI-{level}; run: pip install 'palestra[babyai]'")
    spec = registry[max(versions, key=lambda name: int(name.rpartition("-v")[2]))]
    module, _, name = str(spec.entry_point).partition(":")
    return fast_level_class(module, name)(**spec.kwargs)


def _silent(*_: object) -> None:
    """Replace `print` in minigrid, which otherwise prints a message for every rejected level."""


def _minigrid() -> Any:
    """Return Gymnasium's registry after minigrid has registered its levels."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # minigrid imports pygame, which prints a banner
    require("minigrid", extra="babyai")
    require("minigrid.envs.babyai.core.roomgrid_level", extra="babyai").print = _silent  # type: ignore[attr-defined]
    return require("gymnasium.envs.registration", extra="babyai").registry

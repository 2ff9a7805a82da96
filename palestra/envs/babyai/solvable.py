"""A freshly drawn level -> whether its mission can be fulfilled at all.

minigrid sometimes locks a key into the room it opens, and a level that forbids to pick up anything but the target
may wall the target in. Such draws are no tasks.
"""

from __future__ import annotations

from typing import Any

from palestra.envs.babyai.ground import around, flood, floor_of, things_of


def solvable(engine: Any) -> bool:
    """Things can be moved out of the way, unless the mission forbids it; a locked door opens if its key is in reach."""
    clauses = _clauses(engine.instrs)
    locked = any(cell.type == "door" and cell.is_locked for _, _, cell in things_of(engine.grid))
    if not locked and not any(_hands_off(clause) for clause in clauses):
        return True
    reach = {movable: _reach(engine, movable=movable) for movable in {not _hands_off(clause) for clause in clauses}}
    return all(_possible(engine, clause, *reach[not _hands_off(clause)]) for clause in clauses)


def _hands_off(clause: Any) -> bool:
    return type(clause).__name__ == "PickupInstr" and bool(clause.strict)


def _clauses(instruction: Any) -> list[Any]:
    if hasattr(instruction, "instr_a"):
        return _clauses(instruction.instr_a) + _clauses(instruction.instr_b)
    return [instruction]


def _possible(engine: Any, clause: Any, reached: int, keys: set[str]) -> bool:
    kind = type(clause).__name__
    if kind == "PutNextInstr":
        return _near(engine, clause.desc_move, reached) and _near(engine, clause.desc_fixed, reached)
    if kind == "OpenInstr":
        doors = [door for door in clause.desc.obj_set if not door.is_locked or door.color in keys]
        return any(_beside(engine, door, reached) for door in doors)
    return _near(engine, clause.desc, reached)


def _reach(engine: Any, *, movable: bool) -> tuple[int, set[str]]:
    """The cells the agent can come to, and the colours of the keys it can have."""
    grid, width = engine.grid, engine.width
    free = floor_of(grid)
    locked: list[tuple[int, str]] = []
    keys_at: list[tuple[int, str]] = []
    for x, y, what in things_of(grid):
        cell = 1 << y * width + x
        keys_at += [(cell, thing.color) for thing in (what, what.contains) if thing is not None and thing.type == "key"]
        if what.type == "door" and what.is_locked:
            locked.append((cell, what.color))
        elif movable or what.type in ("box", "door"):
            free |= cell
    hand = engine.carrying
    keys = {hand.color} if hand is not None and hand.type == "key" else set()
    reached = 1 << int(engine.agent_pos[1]) * width + int(engine.agent_pos[0])
    while True:
        reached = flood(reached, free, width)
        touched = reached | around(reached, width)
        keys.update(color for cell, color in keys_at if cell & touched)
        opened = [door for door in locked if door[1] in keys and door[0] & touched]
        if not opened:
            return reached, keys
        locked = [door for door in locked if door not in opened]
        for cell, _ in opened:
            reached |= cell


def _near(engine: Any, description: Any, reached: int) -> bool:
    return any(what is engine.carrying or _beside(engine, what, reached) for what in description.obj_set)


def _beside(engine: Any, what: Any, reached: int) -> bool:
    """Whether the agent can stand beside it; walls, which "a grey object" names too, are not meant."""
    width = engine.width
    return any(one is what and around(1 << y * width + x, width) & reached for x, y, one in things_of(engine.grid))

"""Check whether the mission in a newly generated level can be completed.

minigrid sometimes places a key inside the locked room that it opens. In a level that forbids picking up anything but
the target, other objects may block the way to the target. Such levels are replaced by newly generated ones.
"""

from __future__ import annotations

from typing import Any

from palestra.envs.babyai.bitgrid import flood_fill, free_cells, neighbors, objects_on


def solvable(engine: Any) -> bool:
    """Return whether every clause of the mission can be completed.

    Objects count as movable unless the mission forbids picking them up. A locked door counts as passable if its key can
    be reached.
    """
    clauses = _clauses(engine.instrs)
    locked = any(cell.type == "door" and cell.is_locked for _, _, cell in objects_on(engine.grid))
    if not locked and not any(_strict_pickup(clause) for clause in clauses):
        return True
    reach = {movable: _reach(engine, movable=movable) for movable in {not _strict_pickup(clause) for clause in clauses}}
    return all(_can_complete(engine, clause, *reach[not _strict_pickup(clause)]) for clause in clauses)


def _strict_pickup(clause: Any) -> bool:
    return type(clause).__name__ == "PickupInstr" and bool(clause.strict)


def _clauses(instruction: Any) -> list[Any]:
    if hasattr(instruction, "instr_a"):
        return _clauses(instruction.instr_a) + _clauses(instruction.instr_b)
    return [instruction]


def _can_complete(engine: Any, clause: Any, reached: int, keys: set[str]) -> bool:
    kind = type(clause).__name__
    if kind == "PutNextInstr":
        return _any_reachable(engine, clause.desc_move, reached) and _any_reachable(engine, clause.desc_fixed, reached)
    if kind == "OpenInstr":
        doors = [door for door in clause.desc.obj_set if not door.is_locked or door.color in keys]
        return any(_reachable_beside(engine, door, reached) for door in doors)
    return _any_reachable(engine, clause.desc, reached)


def _reach(engine: Any, *, movable: bool) -> tuple[int, set[str]]:
    """Return the cells that the agent can reach and the colors of the keys that it can pick up."""
    grid, width = engine.grid, engine.width
    free = free_cells(grid)
    locked: list[tuple[int, str]] = []
    keys_at: list[tuple[int, str]] = []
    for x, y, what in objects_on(grid):
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
        reached = flood_fill(reached, free, width)
        touched = reached | neighbors(reached, width)
        keys.update(color for cell, color in keys_at if cell & touched)
        opened = [door for door in locked if door[1] in keys and door[0] & touched]
        if not opened:
            return reached, keys
        locked = [door for door in locked if door not in opened]
        for cell, _ in opened:
            reached |= cell


def _any_reachable(engine: Any, description: Any, reached: int) -> bool:
    return any(what is engine.carrying or _reachable_beside(engine, what, reached) for what in description.obj_set)


def _reachable_beside(engine: Any, what: Any, reached: int) -> bool:
    """Return whether the agent can stand next to the object.

    For walls, which also match "a grey object", the result is False.
    """
    width = engine.width
    return any(
        other is what and neighbors(1 << y * width + x, width) & reached for x, y, other in objects_on(engine.grid)
    )

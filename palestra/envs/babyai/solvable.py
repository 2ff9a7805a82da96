"""A freshly drawn level -> whether its mission can be fulfilled at all.

minigrid sometimes locks a key into the room it opens, and a level that forbids to pick up anything but the target
may wall the target in. Such draws are no tasks.
"""

from __future__ import annotations

from typing import Any


def solvable(engine: Any) -> bool:
    """Things can be moved out of the way, unless the mission forbids it; a locked door opens if its key is in reach."""
    clauses = _clauses(engine.instrs)
    locked = any(cell is not None and cell.type == "door" and cell.is_locked for cell in engine.grid.grid)
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


def _possible(engine: Any, clause: Any, reached: set[int], keys: set[str]) -> bool:
    kind = type(clause).__name__
    if kind == "PutNextInstr":
        return _near(engine, clause.desc_move, reached) and _near(engine, clause.desc_fixed, reached)
    if kind == "OpenInstr":
        doors = [door for door in clause.desc.obj_set if not door.is_locked or door.color in keys]
        return any(_beside(engine, door, reached) for door in doors)
    return _near(engine, clause.desc, reached)


def _reach(engine: Any, *, movable: bool) -> tuple[set[int], set[str]]:
    """The cells the agent can come to, and the colours of the keys it can have."""
    width, cells = engine.width, engine.grid.grid
    start = int(engine.agent_pos[1]) * width + int(engine.agent_pos[0])
    reached, keys = {start}, set()
    edge, barred = [start], set()
    if engine.carrying is not None and engine.carrying.type == "key":
        keys.add(engine.carrying.color)
    while edge:
        here = edge.pop()
        for cell in (here + 1, here - 1, here + width, here - width):
            what = cells[cell]
            if cell in reached or (what is not None and what.type == "wall"):
                continue
            if what is not None:
                for thing in (what, what.contains):
                    if thing is not None and thing.type == "key":
                        keys.add(thing.color)
                if what.type == "door" and what.is_locked and what.color not in keys:
                    barred.add(cell)
                    continue
                if not movable and what.type not in ("box", "door"):
                    continue
            reached.add(cell)
            edge.append(cell)
        if not edge:
            opened = {cell for cell in barred if cells[cell].color in keys}
            barred -= opened
            reached |= opened
            edge.extend(opened)
    return reached, keys


def _near(engine: Any, description: Any, reached: set[int]) -> bool:
    return any(what is engine.carrying or _beside(engine, what, reached) for what in description.obj_set)


def _beside(engine: Any, what: Any, reached: set[int]) -> bool:
    width = engine.width
    if what.type == "wall":  # "a grey object" names the walls, too
        return False
    return any(
        one is what and not reached.isdisjoint((cell + 1, cell - 1, cell + width, cell - width))
        for cell, one in enumerate(engine.grid.grid)
    )

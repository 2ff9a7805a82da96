"""What is in view -> the actions that are possible, in words, and the moves each of them takes.

Paths lead over floor and open doors in view, so that a planned way is never wrong: nothing moves but the agent.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, NamedTuple

from palestra.envs.babyai.engine import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE, World
from palestra.envs.babyai.quick import STEPS
from palestra.envs.babyai.view import Thing, View, name_of

Pos = tuple[int, int]

PRIMITIVES = {
    "turn left": LEFT,
    "turn right": RIGHT,
    "move forward": FORWARD,
    "pick up": PICKUP,
    "drop": DROP,
    "toggle": TOGGLE,
}
_MANY = re.compile(r"move forward ([0-9]{1,3})")
_ON_THING = re.compile(r"(toggle and go through|go through|go to|pick up|toggle) (.+)")
_DOOR = re.compile(r"(\w+) (?:(open|closed|locked) )?door( [0-9]+)?")


class Refused(NamedTuple):
    """Why an action is not possible here."""

    why: str
    known: bool = True  # False: nothing of the kind exists in this world


def open_floor(cells: list[Any], width: int, pos: Pos) -> bool:
    """Whether the agent can stand there."""
    cell = cells[pos[1] * width + pos[0]]
    return cell is None or (cell.type == "door" and cell.is_open)


def ground(world: World, view: View) -> set[Pos]:
    """The cells in view that can be walked to through the view."""
    start, free = world.pos, view.floor
    reached = {start}
    edge = [start]
    while edge:
        x, y = edge.pop()
        for pos in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if pos in free and pos not in reached:
                reached.add(pos)
                edge.append(pos)
    return reached


def beside(pos: Pos, cells: set[Pos]) -> bool:
    x, y = pos
    return (x + 1, y) in cells or (x - 1, y) in cells or (x, y + 1) in cells or (x, y - 1) in cells


def way_to(start: Pos, facing: int, target: Pos, floor: set[Pos], *, onto: bool = False) -> list[int] | None:
    """The fewest moves over `floor` that lead before `target`, looking at it; with `onto`, that lead onto it."""
    first = (start, facing)
    came: dict[tuple[Pos, int], tuple[tuple[Pos, int], int] | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        pos, d = state
        dx, dy = STEPS[d]
        ahead = (pos[0] + dx, pos[1] + dy)
        if (pos == target) if onto else (ahead == target):
            moves: list[int] = []
            while (last := came[state]) is not None:
                state, move = last
                moves.append(move)
            moves.reverse()
            return moves
        steps = [((pos, (d - 1) % 4), LEFT), ((pos, (d + 1) % 4), RIGHT)]
        if ahead in floor:
            steps.insert(0, ((ahead, d), FORWARD))
        for then, move in steps:
            if then not in came:
                came[then] = (state, move)
                queue.append(then)
    return None


def available(world: World, view: View) -> list[str]:
    """Every action that does something here, in the words it is to be given in."""
    x, y = world.pos
    dx, dy = STEPS[world.facing]
    front = world.cells[(y + dy) * world.width + x + dx]
    found = ["turn left", "turn right"]
    if front is None or (front.type == "door" and front.is_open):
        found.append("move forward")
    hand = world.carrying
    if hand is not None and front is None:
        found.append("drop")
    if front is not None and (front.type == "box" or (front.type == "door" and can_toggle(front, hand))):
        found.append("toggle")
    reached = ground(world, view)
    for thing in view.things:
        if not beside(thing.pos, reached):
            continue
        found.append(f"go to {thing.name}")
        if thing.kind == "door":
            if thing.what.is_open:
                if thing.pos in reached:
                    found.append(f"go through {thing.name}")
            elif can_toggle(thing.what, hand):
                found.append(f"toggle and go through {thing.name}")
        elif hand is None:
            found.append(f"pick up {thing.name}")
    return found


def can_toggle(door: Any, hand: Any) -> bool:
    return not door.is_locked or (hand is not None and hand.type == "key" and hand.color == door.color)


def plan(words: str, world: World, view: View) -> list[int] | Refused:
    """The moves that `words` stand for, or why there are none."""
    words = words.replace("pickup", "pick up")
    if words in PRIMITIVES:
        return _primitive(words, world)
    many = _MANY.fullmatch(words)
    if many is not None:
        count = int(many[1])
        if count == 0:
            return Refused("0 steps lead nowhere.")
        blocked = _primitive("move forward", world)
        return blocked if isinstance(blocked, Refused) else [FORWARD] * min(count, world.width + world.height)
    match = _ON_THING.fullmatch(words)
    if match is None:
        return Refused("That is not an action.", known=False)
    verb, name = match.groups()
    thing = _find(name, view)
    if thing is None:
        return Refused(f"You see no {name.removeprefix('the ')} now.")
    return _on_thing(verb, thing, world, view)


def _primitive(words: str, world: World) -> list[int] | Refused:
    x, y = world.pos
    dx, dy = STEPS[world.facing]
    front, hand = world.cells[(y + dy) * world.width + x + dx], world.carrying
    name = None if front is None else "wall" if front.type == "wall" else name_of(front)
    if words == "move forward" and front is not None and not (front.type == "door" and front.is_open):
        return Refused(f"The way is blocked by a {name}.")
    if words == "pick up":
        if hand is not None:
            return Refused(f"Your hand is full: you carry a {name_of(hand)}. Drop it first.")
        if front is None:
            return Refused("There is nothing in front of you that could be picked up.")
        if not front.can_pickup():
            return Refused(f"What is in front of you, a {name}, cannot be picked up.")
    if words == "drop":
        if hand is None:
            return Refused("You carry nothing that you could drop.")
        if front is not None:
            return Refused(f"The place in front of you is taken by a {name}. Drop it where there is free floor ahead.")
    if words == "toggle":
        if front is None or front.type not in ("door", "box"):
            what = "nothing" if name is None else f"a {name}"
            return Refused(f"There is {what} in front of you: only doors and boxes open.")
        if front.type == "door" and not can_toggle(front, hand):
            return Refused(f"The {name} needs a {front.color} key in your hand.")
    return [PRIMITIVES[words]]


def _find(name: str, view: View) -> Thing | None:
    """The thing of that name; without a number the nearest, and a door also without its state."""
    name = name.removeprefix("the ")
    door = _DOOR.fullmatch(name)
    for thing in view.things:
        if thing.name == name or thing.name.rpartition(" ")[0] == name:
            return thing
    if door is not None and door[2] is None and door[3] is None:
        return next((thing for thing in view.things if thing.kind == "door" and thing.what.color == door[1]), None)
    return None


def _on_thing(verb: str, thing: Thing, world: World, view: View) -> list[int] | Refused:
    name, what, hand = thing.name, thing.what, world.carrying
    if verb in ("go through", "toggle and go through"):
        if thing.kind != "door":
            return Refused(f"{name} is no door.")
        if verb == "go through" and not what.is_open:
            return Refused(f"{name} is not open. Open it: toggle and go through {name}.")
        if not what.is_open and not can_toggle(what, hand):
            return Refused(f"{name} needs a {what.color} key in your hand.")
    if verb == "pick up":
        if thing.kind == "door":
            return Refused("Doors cannot be picked up.")
        if hand is not None:
            return Refused(f"Your hand is full: you carry a {name_of(hand)}. Drop it first.")
    if verb == "toggle":
        if thing.kind not in ("door", "box"):
            return Refused("Only doors and boxes open.")
        if thing.kind == "door" and not can_toggle(what, hand):
            return Refused(f"{name} needs a {what.color} key in your hand.")
    onto = thing.kind == "door" and what.is_open and verb.endswith("go through")
    moves = way_to(world.pos, world.facing, thing.pos, view.floor, onto=onto)
    if moves is None:
        return Refused(f"No way leads to {name} through what you see.")
    if verb == "pick up":
        return [*moves, PICKUP]
    if verb == "toggle":
        return [*moves, TOGGLE]
    if verb == "toggle and go through" and not onto:
        return [*moves, TOGGLE, FORWARD]
    return moves

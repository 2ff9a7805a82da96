"""List the actions that are possible in the current view, and translate an action into moves.

Paths cross only visible floor and open doors. Nothing moves except the agent, so a planned path is never blocked.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, NamedTuple

from palestra.envs.babyai.fast_levels import DIRECTIONS
from palestra.envs.babyai.level import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE, Level
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
_SEVERAL_STEPS = re.compile(r"move forward ([0-9]{1,3})")
_ON_THING = re.compile(r"(toggle and go through|go through|go to|pick up|toggle) (.+)")
_DOOR = re.compile(r"(\w+) (?:(open|closed|locked) )?door( [0-9]+)?")


class Refusal(NamedTuple):
    """Reason why an action is not possible."""

    why: str
    recognized: bool = True  # False if the action's name is unknown


def open_floor(cells: list[Any], width: int, pos: Pos) -> bool:
    """Return whether the agent can stand at `pos`."""
    cell = cells[pos[1] * width + pos[0]]
    return cell is None or (cell.type == "door" and cell.is_open)


def reachable(level: Level, view: View) -> set[Pos]:
    """Return the cells in view that the agent can walk to without leaving the view."""
    start, free = level.pos, view.floor
    reached = {start}
    edge = [start]
    while edge:
        x, y = edge.pop()
        for pos in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if pos in free and pos not in reached:
                reached.add(pos)
                edge.append(pos)
    return reached


def next_to(pos: Pos, cells: set[Pos]) -> bool:
    x, y = pos
    return (x + 1, y) in cells or (x - 1, y) in cells or (x, y + 1) in cells or (x, y - 1) in cells


def path_to(start: Pos, facing: int, target: Pos, floor: set[Pos], *, onto: bool = False) -> list[int] | None:
    """Return the shortest sequence of moves over `floor` that ends facing `target` or, with `onto`, standing on it."""
    first = (start, facing)
    previous: dict[tuple[Pos, int], tuple[tuple[Pos, int], int] | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        pos, d = state
        dx, dy = DIRECTIONS[d]
        ahead = (pos[0] + dx, pos[1] + dy)
        if (pos == target) if onto else (ahead == target):
            moves: list[int] = []
            while (step := previous[state]) is not None:
                state, move = step
                moves.append(move)
            moves.reverse()
            return moves
        steps = [((pos, (d - 1) % 4), LEFT), ((pos, (d + 1) % 4), RIGHT)]
        if ahead in floor:
            steps.insert(0, ((ahead, d), FORWARD))
        for after, move in steps:
            if after not in previous:
                previous[after] = (state, move)
                queue.append(after)
    return None


def available(level: Level, view: View) -> list[str]:
    """Return all actions that would have an effect now, in the format that the agent must use."""
    x, y = level.pos
    dx, dy = DIRECTIONS[level.facing]
    front = level.cells[(y + dy) * level.width + x + dx]
    actions = ["turn left", "turn right"]
    if front is None or (front.type == "door" and front.is_open):
        actions.append("move forward")
    hand = level.carrying
    if hand is not None and front is None:
        actions.append("drop")
    if front is not None and (front.type == "box" or (front.type == "door" and can_toggle(front, hand))):
        actions.append("toggle")
    reached = reachable(level, view)
    for thing in view.things:
        if not next_to(thing.pos, reached):
            continue
        actions.append(f"go to {thing.name}")
        if thing.kind == "door":
            if thing.what.is_open:
                if thing.pos in reached:
                    actions.append(f"go through {thing.name}")
            elif can_toggle(thing.what, hand):
                actions.append(f"toggle and go through {thing.name}")
        elif hand is None:
            actions.append(f"pick up {thing.name}")
    return actions


def can_toggle(door: Any, hand: Any) -> bool:
    return not door.is_locked or (hand is not None and hand.type == "key" and hand.color == door.color)


def plan(words: str, level: Level, view: View) -> list[int] | Refusal:
    """Translate an action into moves, or return the reason why it is not possible."""
    words = words.replace("pickup", "pick up")
    if words in PRIMITIVES:
        return _primitive(words, level)
    steps_match = _SEVERAL_STEPS.fullmatch(words)
    if steps_match is not None:
        count = int(steps_match[1])
        if count == 0:
            return Refusal("Moving 0 steps has no effect.")
        blocked = _primitive("move forward", level)
        return blocked if isinstance(blocked, Refusal) else [FORWARD] * min(count, level.width + level.height)
    match = _ON_THING.fullmatch(words)
    if match is None:
        return Refusal("That is not an action.", recognized=False)
    verb, name = match.groups()
    thing = _find(name, view)
    if thing is None:
        return Refusal(f"You see no {name.removeprefix('the ')}.")
    return _on_thing(verb, thing, level, view)


def _primitive(words: str, level: Level) -> list[int] | Refusal:
    x, y = level.pos
    dx, dy = DIRECTIONS[level.facing]
    front, hand = level.cells[(y + dy) * level.width + x + dx], level.carrying
    name = None if front is None else "wall" if front.type == "wall" else name_of(front)
    if words == "move forward" and front is not None and not (front.type == "door" and front.is_open):
        return Refusal(f"The way is blocked by a {name}.")
    if words == "pick up":
        if hand is not None:
            return Refusal(f"You are already carrying a {name_of(hand)}. Drop it first.")
        if front is None:
            return Refusal("There is nothing in front of you to pick up.")
        if not front.can_pickup():
            return Refusal(f"The {name} in front of you cannot be picked up.")
    if words == "drop":
        if hand is None:
            return Refusal("You are not carrying anything.")
        if front is not None:
            return Refusal(f"The cell in front of you is occupied by a {name}. Turn to an empty cell, then drop.")
    if words == "toggle":
        if front is None or front.type not in ("door", "box"):
            what = "nothing" if name is None else f"a {name}"
            return Refusal(f"There is {what} in front of you; only doors and boxes can be toggled.")
        if front.type == "door" and not can_toggle(front, hand):
            return Refusal(f"The {name} opens only while you carry a {front.color} key.")
    return [PRIMITIVES[words]]


def _find(name: str, view: View) -> Thing | None:
    """Return the object in view with this name, or None.

    A name without a number refers to the nearest object with that name. The state of a door may be omitted.
    """
    name = name.removeprefix("the ")
    door = _DOOR.fullmatch(name)
    for thing in view.things:
        if thing.name == name or thing.name.rpartition(" ")[0] == name:
            return thing
    if door is not None and door[2] is None and door[3] is None:
        return next((thing for thing in view.things if thing.kind == "door" and thing.what.color == door[1]), None)
    return None


def _on_thing(verb: str, thing: Thing, level: Level, view: View) -> list[int] | Refusal:
    name, what, hand = thing.name, thing.what, level.carrying
    if verb in ("go through", "toggle and go through"):
        if thing.kind != "door":
            return Refusal(f"{name} is not a door.")
        if verb == "go through" and not what.is_open:
            return Refusal(f"{name} is not open. Use: toggle and go through {name}.")
        if not what.is_open and not can_toggle(what, hand):
            return Refusal(f"{name} opens only while you carry a {what.color} key.")
    if verb == "pick up":
        if thing.kind == "door":
            return Refusal("Doors cannot be picked up.")
        if hand is not None:
            return Refusal(f"You are already carrying a {name_of(hand)}. Drop it first.")
    if verb == "toggle":
        if thing.kind not in ("door", "box"):
            return Refusal("Only doors and boxes can be toggled.")
        if thing.kind == "door" and not can_toggle(what, hand):
            return Refusal(f"{name} opens only while you carry a {what.color} key.")
    onto = thing.kind == "door" and what.is_open and verb.endswith("go through")
    moves = path_to(level.pos, level.facing, thing.pos, view.floor, onto=onto)
    if moves is None:
        return Refusal(f"There is no path to {name} within your view.")
    if verb == "pick up":
        return [*moves, PICKUP]
    if verb == "toggle":
        return [*moves, TOGGLE]
    if verb == "toggle and go through" and not onto:
        return [*moves, TOGGLE, FORWARD]
    return moves

"""Shorten ScienceWorld's own solutions so that they fit the turn budget and succeed.

ScienceWorld's solver observes a sliding block at every tick for hundreds of turns. It also heats some substances until
they burn, after which they cannot be frozen. This module replaces repeated observations with `wait`. For tasks in which
substances may burn, it executes the solution and shortens the heating if the solution fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

WAIT = 10  # duration of `wait` in ticks; every other command takes one tick
BURNS = frozenset({"freeze"})  # task types in which the solver overheats some substances

_OBSERVING = ("look at ", "examine ", "use thermometer ")


def shortened(path: Sequence[str]) -> tuple[str, ...]:
    """Return a path of the same duration in fewer turns, in which `wait` replaces ten looks at the same object."""
    short: list[str] = []
    for action, run in groupby(path):
        count = sum(1 for _ in run)
        waits = (count - 1) // WAIT if action == "wait1" or action.startswith("look at ") else 0
        short += ["wait"] * waits + [action] * (count - waits * WAIT)  # at least one observation of the object remains
    return tuple(short)


def unburnt(path: tuple[str, ...], solves: Callable[[tuple[str, ...]], bool]) -> tuple[str, ...]:
    """Shorten the heating as little as necessary to solve the task, or return the unchanged path if this fails."""
    if solves(path):
        return path
    return next((other for other in _less_heated(path) if solves(other)), path)


def _less_heated(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the path without the last 1, 2, ... commands that only observe a heated substance."""
    for at, action in enumerate(path):
        if action.startswith("activate "):
            end = at + 1
            while end < len(path) and path[end].startswith(_OBSERVING):
                end += 1
            for start in range(end - 1, at, -1):
                yield path[:start] + path[end:]

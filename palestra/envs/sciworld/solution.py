"""Shorten ScienceWorld's own solutions so that they fit the turn budget and succeed.

ScienceWorld's solver observes a sliding block tick by tick for hundreds of turns, and it heats some substances until
they burn, after which they cannot be frozen. Repeated observations are replaced by waiting, and for tasks with such
substances the solution is tried and, if it fails, shortened at the heat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

WAIT = 10  # ticks that pass with `wait`; every other command takes one
BURNS = frozenset({"freeze"})  # task types in which the solver overheats some substances

_OBSERVING = ("look at ", "examine ", "use thermometer ")


def shortened(path: Sequence[str]) -> tuple[str, ...]:
    """Return a path of the same duration in fewer turns: ten looks at the same object become one `wait`."""
    short: list[str] = []
    for action, run in groupby(path):
        count = sum(1 for _ in run)
        waits = (count - 1) // WAIT if action == "wait1" or action.startswith("look at ") else 0
        short += ["wait"] * waits + [action] * (count - waits * WAIT)  # the last look stays
    return tuple(short)


def unburnt(path: tuple[str, ...], solves: Callable[[tuple[str, ...]], bool]) -> tuple[str, ...]:
    """Return the path if it solves the task, else the first with less heating that does, else the path unchanged."""
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

"""The engine's own solution of a variation -> one that can be played within the budget of turns.

The engine's solver knows its world, but it watches a block slide tick by tick for hundreds of turns, and it watches a
substance in the furnace until it has caught fire, after which there is nothing left to freeze. So watching is cut
short, and where the solver is known to burn things its solution is tried, and less watching with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

WAIT = 10  # ticks that pass with `wait`; every other command takes one
BURNS = frozenset({"freeze"})  # types in which the solver overheats some substances

_WATCHING = ("look at ", "examine ", "use thermometer ")


def shortened(path: Sequence[str]) -> tuple[str, ...]:
    """The same course of time in fewer turns: of ten looks at the same thing, one `wait` is left."""
    short: list[str] = []
    for action, run in groupby(path):
        count = sum(1 for _ in run)
        waits = (count - 1) // WAIT if action == "wait1" or action.startswith("look at ") else 0
        short += ["wait"] * waits + [action] * (count - waits * WAIT)  # what there is to see at last is looked at
    return tuple(short)


def unburnt(path: tuple[str, ...], solves: Callable[[tuple[str, ...]], bool]) -> tuple[str, ...]:
    """The path, if it solves the task or nothing else does; else the one with a little less watching at the heat."""
    if solves(path):
        return path
    return next((other for other in _less_heated(path) if solves(other)), path)


def _less_heated(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Without the last 1, 2, ... commands that only watch what is heated."""
    for at, action in enumerate(path):
        if action.startswith("activate "):
            end = at + 1
            while end < len(path) and path[end].startswith(_WATCHING):
                end += 1
            for start in range(end - 1, at, -1):
                yield path[:start] + path[end:]

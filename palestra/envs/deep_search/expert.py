"""A question about the generated world and what has been seen so far -> the next action of its solver.

The solver (`palestra.envs.world.solver`) is run anew every turn over what the agent has been shown. Where it wants a
page that was not read yet, finding or opening that page is the next action; where it comes to its end, that is the
answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from palestra.envs.deep_search.actions import ANSWER, OPEN, SEARCH, Move
from palestra.envs.world.phrases import UNKNOWN
from palestra.envs.world.reader import Reading, read
from palestra.envs.world.solver import Solver, queries

_reading = lru_cache(maxsize=10_000)(read)  # the same pages are read turn after turn, and by many environments


class _Wanted(Exception):
    def __init__(self, move: Move) -> None:
        super().__init__(move)
        self.move = move


class _Follower(Solver):
    """The solver over what has been shown; `_Wanted` where that is not enough."""

    def __init__(self, found: Collection[str], opened: Mapping[str, str], asked: Collection[str], left: int) -> None:
        super().__init__(lambda _: "")
        self._found, self._opened, self._asked, self._left = found, opened, asked, left

    def lookup(self, title: str) -> Reading | None:
        if title in self._opened:
            return _reading(title, self._opened[title])
        if title in self._found:
            raise _Wanted(Move(OPEN, title))
        query = next((query for query in queries(title) if query not in self._asked), None)
        if query is None or self._left < 1:
            return None  # it has no page, or none that can still be found
        raise _Wanted(Move(SEARCH, query))


def next_move(
    question: str,
    *,
    found: Collection[str],
    opened: Mapping[str, str],
    asked: Collection[str],
    searches_left: int,
    turns_left: int,
) -> Move:
    """What the solver does now. `found` are the titles that searches have shown, `opened` pages by title."""
    try:
        return Move(ANSWER, _Follower(found, opened, asked, searches_left).answer(question))
    except _Wanted as wanted:
        return wanted.move if turns_left > 1 else Move(ANSWER, UNKNOWN)

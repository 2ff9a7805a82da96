"""Tower of Hanoi: carry a tower of disks over to another place, one disk a turn."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Unpack

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.errors import BadValue

MOST_DISKS = 16

Towers = tuple[int, int, int]  # each a set of disks, bit 0 the smallest: its order is given, its lowest bit the top
Move = tuple[int, int]  # from, to

_NAMES = "ABC"
_MOVES = [(source, target) for source in range(3) for target in range(3) if source != target]
_TYPED = {f"{_NAMES[source]} {_NAMES[target]}": (source, target) for source, target in _MOVES}  # as the prompt shows it
_MOVE = re.compile(r"[\s\[(]*([ABC])\s*(?:(?:,|-*>|→|TO)\s*)?([ABC])[\s\])]*", re.IGNORECASE | re.ASCII)


class TowerofHanoi(LanguageGame):
    """`num_disks` disks stand on tower A; they all have to get to tower C, and a disk never lies on a smaller one.

    Differs from GEM: a move from a tower onto itself is refused, and a budget that no player could keep is an error.
    The expert takes the shortest way from any position.
    """

    title = "Tower of Hanoi"
    levels = (
        {"num_disks": 3, "max_turns": 10},
        {"num_disks": 4, "max_turns": 20},
        {"num_disks": 5, "max_turns": 35},
    )

    num_disks: int
    max_turns: int

    def __init__(
        self, *, num_disks: int | None = 3, max_turns: int | None = 100, **options: Unpack[GameOptions]
    ) -> None:
        if num_disks is not None:
            if not 1 <= num_disks <= MOST_DISKS:
                raise BadValue(f"num_disks goes from 1 to {MOST_DISKS}, got {num_disks}")
            fewest = 2**num_disks - 1
            if max_turns is not None and max_turns < fewest:
                raise BadValue(f"{num_disks} disks take {fewest} turns at least: raise max_turns from {max_turns}")
        super().__init__({"num_disks": num_disks, "max_turns": max_turns}, **options)

    def setup(self) -> None:
        self.towers: Towers = ((1 << self.num_disks) - 1, 0, 0)

    def rules(self) -> str:
        return (
            f"There are three towers, A, B and C, and {self.num_disks} disks, numbered by size from 1, the smallest, "
            f"to {self.num_disks}, the largest. All of them stand on tower A. Get all of them onto tower C.\n"
            "A move takes the top disk of one tower and puts it on top of another. A disk must never lie on a smaller "
            "one. A move against these rules costs a turn and changes nothing.\n"
            "A move is the letter of the tower you take from, then the letter of the tower you put onto.\n"
            "The towers are shown from bottom to top: the last number of a line is the top disk."
        )

    def example_move(self) -> str:
        return "A C"

    def parse(self, text: str) -> Move | None:
        move = _TYPED.get(text)
        if move is None and (match := _MOVE.fullmatch(text)):
            move = _NAMES.index(match[1].upper()), _NAMES.index(match[2].upper())
        return move

    def play(self, move: Move) -> tuple[int, str]:
        status, message, self.towers = _played(self.towers, move)
        return status, message

    def board(self) -> str:
        return _board(self.towers)

    def progress(self) -> float:
        a, b, _ = self.towers
        return 1.0 - (a | b).bit_length() / self.num_disks  # by the largest disk that is not on C yet

    def random_move(self) -> str:
        # An empty tower takes any disk, as if its top were larger than all.
        tops = [tower & -tower or 1 << self.num_disks for tower in self.towers]
        source, target = self.player_rng.choice([(s, t) for s, t in _MOVES if tops[s] < tops[t]])
        return f"{_NAMES[source]} {_NAMES[target]}"

    def expert_move(self) -> str:
        # For a disk to get to its goal, all smaller ones have to wait on the third tower: which is their goal then.
        source = target = goal = 2
        for size in reversed(range(self.num_disks)):
            place = next(i for i, tower in enumerate(self.towers) if tower >> size & 1)
            if place != goal:
                source, target = place, goal
                goal = 3 - place - goal
        return f"{_NAMES[source]} {_NAMES[target]}"


# There are few positions, and players go through the same ones over and over.
@lru_cache(maxsize=1 << 13)
def _played(towers: Towers, move: Move) -> tuple[int, str, Towers]:
    """How the game stands after the move, what the player is told, and the towers then."""
    source, target = move
    start, end = _NAMES[source], _NAMES[target]
    if source == target:
        return INVALID, f"a disk has to go to another tower, not from {start} to {end}.", towers
    if not towers[source]:
        return INVALID, f"tower {start} is empty, so there is no disk to take.", towers
    disk = towers[source] & -towers[source]
    top = towers[target] & -towers[target]
    if 0 < top < disk:
        size, smaller = disk.bit_length(), top.bit_length()
        message = f"disk {size} cannot go from {start} to {end}: the smaller disk {smaller} is on top there."
        return INVALID, message, towers
    after = list(towers)
    after[source] ^= disk
    after[target] ^= disk
    a, b, c = after
    if a == b == 0:
        return WON, "all disks are on tower C. You win!", (a, b, c)
    return ONGOING, f"disk {disk.bit_length()} went from {start} to {end}.", (a, b, c)


@lru_cache(maxsize=1 << 13)
def _board(towers: Towers) -> str:
    a, b, c = map(_disks, towers)
    return f"A: {a}\nB: {b}\nC: {c}"


def _disks(tower: int) -> str:
    """The disks of a tower, from bottom to top."""
    return " ".join(str(size) for size in range(tower.bit_length(), 0, -1) if tower >> size - 1 & 1) or "empty"

"""Tower of Hanoi: move all disks from one tower to another, one disk per turn."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Unpack

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.errors import BadValue

MAX_DISKS = 16

Towers = tuple[int, int, int]  # sets of disks; bit 0 is the smallest disk, so the lowest set bit is the top disk
Move = tuple[int, int]  # source and target tower

_NAMES = "ABC"
_MOVES = [(source, target) for source in range(3) for target in range(3) if source != target]
# Lookup table for moves in the format that the prompt describes; it is faster than the regular expression.
_EXACT_MOVES = {f"{_NAMES[source]} {_NAMES[target]}": (source, target) for source, target in _MOVES}
_MOVE = re.compile(r"[\s\[(]*([ABC])\s*(?:(?:,|-*>|→|TO)\s*)?([ABC])[\s\])]*", re.IGNORECASE | re.ASCII)


class TowerofHanoi(LanguageGame):
    """Move `num_disks` disks from tower A to tower C without placing a disk on a smaller one.

    Differences from GEM: a move from a tower to itself is rejected, and a turn budget that is too small for a solution
    is an error. The expert follows a shortest solution from any position.
    """

    title = "Tower of Hanoi"
    filters_tasks = False  # there are too few tasks to hold any out
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
            if not 1 <= num_disks <= MAX_DISKS:
                raise BadValue(f"num_disks must be from 1 to {MAX_DISKS}, got {num_disks}")
            min_turns = 2**num_disks - 1
            if max_turns is not None and max_turns < min_turns:
                raise BadValue(f"max_turns must be at least {min_turns} for {num_disks} disks, got {max_turns}")
        super().__init__({"num_disks": num_disks, "max_turns": max_turns}, **options)

    def setup(self) -> None:
        self.towers: Towers = ((1 << self.num_disks) - 1, 0, 0)

    def task_key(self) -> object:
        return self.num_disks

    def rules(self) -> str:
        return (
            f"There are three towers, A, B and C, and {self.num_disks} disks, numbered by size from 1 (the smallest) "
            f"to {self.num_disks} (the largest). All disks start on tower A. Move all of them to tower C.\n"
            "A move takes the top disk of one tower and puts it on top of another tower. A disk must never be placed "
            "on a smaller disk. A move that breaks these rules costs a turn and changes nothing.\n"
            "A move is the letter of the tower you take from and the letter of the tower you move to, separated by a "
            "space.\n"
            "Each tower is shown from bottom to top: the last number in a line is the top disk."
        )

    def example_move(self) -> str:
        return "A C"

    def parse(self, text: str) -> Move | None:
        move = _EXACT_MOVES.get(text)
        if move is None and (match := _MOVE.fullmatch(text)):
            move = _NAMES.index(match[1].upper()), _NAMES.index(match[2].upper())
        return move

    def play(self, move: Move) -> tuple[int, str]:
        status, message, self.towers = _apply(self.towers, move)
        return status, message

    def board(self) -> str:
        return _board(self.towers)

    def progress(self) -> float:
        a, b, _ = self.towers
        return 1.0 - (a | b).bit_length() / self.num_disks  # depends on the largest disk that is not on tower C

    def random_move(self) -> str:
        # An empty tower accepts any disk, as if its top disk were larger than all others.
        tops = [tower & -tower or 1 << self.num_disks for tower in self.towers]
        source, target = self.player_rng.choice([(s, t) for s, t in _MOVES if tops[s] < tops[t]])
        return f"{_NAMES[source]} {_NAMES[target]}"

    def expert_move(self) -> str:
        # Before a disk can move to its goal, all smaller disks must move to the third tower, which becomes their goal.
        source = target = goal = 2
        for size in reversed(range(self.num_disks)):
            place = next(i for i, tower in enumerate(self.towers) if tower >> size & 1)
            if place != goal:
                source, target = place, goal
                goal = 3 - place - goal
        return f"{_NAMES[source]} {_NAMES[target]}"


# Results are cached because there are few positions, and games visit the same positions repeatedly.
@lru_cache(maxsize=1 << 13)
def _apply(towers: Towers, move: Move) -> tuple[int, str, Towers]:
    """Return the status of the move, the message for the player and the resulting towers."""
    source, target = move
    start, end = _NAMES[source], _NAMES[target]
    if source == target:
        return INVALID, f"a disk must move to another tower, not from {start} to {end}.", towers
    if not towers[source]:
        return INVALID, f"tower {start} is empty, so there is no disk to move.", towers
    disk = towers[source] & -towers[source]
    top = towers[target] & -towers[target]
    if 0 < top < disk:
        size, smaller = disk.bit_length(), top.bit_length()
        message = f"disk {size} cannot move from {start} to {end}: the smaller disk {smaller} is on top there."
        return INVALID, message, towers
    after = list(towers)
    after[source] ^= disk
    after[target] ^= disk
    a, b, c = after
    if a == b == 0:
        return WON, "all disks are on tower C. You win!", (a, b, c)
    return ONGOING, f"disk {disk.bit_length()} moved from {start} to {end}.", (a, b, c)


@lru_cache(maxsize=1 << 13)
def _board(towers: Towers) -> str:
    a, b, c = map(_disks, towers)
    return f"A: {a}\nB: {b}\nC: {c}"


def _disks(tower: int) -> str:
    """Return the disks on a tower as text, from bottom to top."""
    return " ".join(str(size) for size in range(tower.bit_length(), 0, -1) if tower >> size - 1 & 1) or "empty"

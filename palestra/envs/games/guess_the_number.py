"""Guess the Number: find a hidden number with "higher" and "lower" hints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Unpack, get_args

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.errors import BadValue
from palestra.parsing import read_int

Measure = Literal["distance", "interval"]


class GuessTheNumber(LanguageGame):
    """Find a hidden number from `min_number` to `max_number`; the feedback on a guess is "higher" or "lower".

    Differences from GEM: 0 is a valid guess, and a close last guess is rewarded only with `partial_credit`. Partial
    credit depends on the distance between the hidden number and the nearest guess; with `progress_by="interval"`, it
    depends on how often the interval that agrees with the feedback was halved, and thus only on what the player sees.
    The expert uses binary search, which always wins within the registered variants' turn budgets.
    """

    title = "Guess the Number"
    filters_tasks = False  # there are too few tasks to hold any out
    move_name = "guess"
    has_board = False

    min_number: int
    max_number: int
    max_turns: int

    def __init__(
        self,
        *,
        min_number: int | None = 1,
        max_number: int | None = 20,
        max_turns: int | None = 20,
        progress_by: Measure = "distance",
        **options: Unpack[GameOptions],
    ) -> None:
        if min_number is not None and max_number is not None and min_number >= max_number:
            raise BadValue(f"min_number must be below max_number, got {min_number} and {max_number}")
        if progress_by not in get_args(Measure):
            raise BadValue(f"progress_by must be 'distance' or 'interval', got {progress_by!r}")
        self.progress_by = progress_by
        level = {"min_number": min_number, "max_number": max_number, "max_turns": max_turns}
        super().__init__(level, **options)

    def draw_level(self) -> Mapping[str, Any]:
        low, high, turns = (self._level[name] for name in ("min_number", "max_number", "max_turns"))
        if low is None:
            low = self.rng.randint(1, 10) if high is None else high - self.rng.randint(5, 50)
        if high is None:
            high = low + self.rng.randint(5, 50)
        if turns is None:
            turns = math.ceil(math.sqrt(high - low)) + 1
            turns = max(turns, (high - low + 1).bit_length())  # at least as many turns as binary search needs
        return {"min_number": low, "max_number": high, "max_turns": turns}

    def setup(self) -> None:
        self.hidden = self.rng.randint(self.min_number, self.max_number)
        self.guesses: set[int] = set()
        self.low = self.min_number  # `low` to `high` is the interval that is consistent with the feedback so far
        self.high = self.max_number

    def task_key(self) -> object:
        return self.min_number, self.max_number, self.hidden

    def rules(self) -> str:
        return (
            f"A whole number from {self.min_number} to {self.max_number} (inclusive) has been chosen. Find it.\n"
            "After every guess, you are told whether the number is higher or lower than your guess."
        )

    def example_move(self) -> str:
        return str(self.min_number)

    parse = staticmethod(read_int)

    def play(self, move: int) -> tuple[int, str]:
        hidden, guesses = self.hidden, self.guesses
        if move == hidden:
            self.low = self.high = move
            return WON, f"{move} is the number. You win!"
        if move in guesses:
            return INVALID, f"you have already guessed {move}."
        if not self.min_number <= move <= self.max_number:
            return INVALID, f"{move} is outside the range from {self.min_number} to {self.max_number}."
        guesses.add(move)
        if move < hidden:
            if move >= self.low:
                self.low = move + 1
            return ONGOING, f"the number is higher than {move}."
        if move <= self.high:
            self.high = move - 1
        return ONGOING, f"the number is lower than {move}."

    def solution(self) -> str:
        return f"The number was {self.hidden}."

    def progress(self) -> float:
        if not self.guesses:
            return 0.0
        if self.progress_by == "interval":
            return 1.0 - math.log(self.high - self.low + 1) / math.log(self.max_number - self.min_number + 1)
        hidden = self.hidden
        nearest = min([abs(guess - hidden) for guess in self.guesses])
        return 1.0 - nearest / (self.max_number - self.min_number)

    def random_move(self) -> str:
        return str(self.player_rng.randint(self.min_number, self.max_number))

    def expert_move(self) -> str:
        return str((self.low + self.high) // 2)

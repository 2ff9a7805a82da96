"""Mastermind: find a secret code from the black and white pegs for each guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, permutations, product
from math import perm
from typing import NamedTuple, Unpack

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.errors import BadValue
from palestra.parsing import read_int
from palestra.types import Step

MAX_CODE_LENGTH = 8
MAX_NUMBERS = 20

Code = tuple[int, ...]

_WIDTH = MAX_NUMBERS + 1
_PEGS = {
    black * 100 + white: f" gets {black} black and {white} white"
    for black in range(MAX_CODE_LENGTH + 1)
    for white in range(MAX_CODE_LENGTH + 1 - black)
}
_MAX_COMPARED = 50  # maximum number of candidate codes that the expert compares with each other
_MAX_STEPS = 30_000  # maximum number of (partial) codes that the expert examines per move


class Guess(NamedTuple):
    """A guess or the secret code, with bit masks for computing the pegs without loops.

    The number of pegs equals the number of bits that two codes' masks share.
    """

    code: Code
    text: str
    lowest: int
    highest: int
    positions: int  # one bit per (number, position); shared bits are black pegs
    numbers: int  # one bit per (number, count of earlier occurrences); shared bits are black or white pegs


MIN_CODES = 200  # no codes are held out if there are fewer than this many


class Mastermind(LanguageGame):
    """Find a secret code of `code_length` numbers from 1 to `num_numbers`; each guess is scored with pegs.

    Differences from GEM: without `duplicate_numbers`, a guess with a repeated number is rejected; additional black pegs
    are rewarded only with `partial_credit`. `consistent_reward` is the reward for a guess that agrees with the feedback
    on all earlier guesses, so that it could be the code; it depends only on what the player sees. With
    `show_history=False`, an observation contains only the feedback on the last guess.
    The expert guesses a code that is consistent with all feedback; if few such codes remain, it chooses the code that
    splits them best. It may need more guesses if there are so many codes (for example with length 8 and 20 numbers)
    that it stops its search early.
    """

    title = "Mastermind"
    move_name = "guess"
    levels = (
        {"code_length": 2, "num_numbers": 4, "max_turns": 10},
        {"code_length": 4, "num_numbers": 6, "max_turns": 20},
        {"code_length": 4, "num_numbers": 8, "max_turns": 30},
    )
    shared = LanguageGame.shared | {"code"}

    code_length: int
    num_numbers: int
    max_turns: int

    def __init__(
        self,
        *,
        code_length: int | None = 4,
        num_numbers: int | None = 6,
        duplicate_numbers: bool = False,
        max_turns: int | None = 20,
        consistent_reward: float = 0.0,
        show_history: bool = True,
        **options: Unpack[GameOptions],
    ) -> None:
        if code_length is not None and not 1 <= code_length <= MAX_CODE_LENGTH:
            raise BadValue(f"code_length must be from 1 to {MAX_CODE_LENGTH}, got {code_length}")
        if num_numbers is not None and not 2 <= num_numbers <= MAX_NUMBERS:
            raise BadValue(f"num_numbers must be from 2 to {MAX_NUMBERS}, got {num_numbers}")
        if code_length is not None and num_numbers is not None and num_numbers < code_length and not duplicate_numbers:
            raise BadValue(
                f"num_numbers={num_numbers} is too small for code_length={code_length} different numbers: raise "
                "num_numbers, lower code_length or set duplicate_numbers=True"
            )
        self.duplicate_numbers = bool(duplicate_numbers)
        self.show_history = bool(show_history)
        level = {"code_length": code_length, "num_numbers": num_numbers, "max_turns": max_turns}
        super().__init__(level, **options)
        self.consistent_reward = float(consistent_reward)
        lowest, highest = self.reward_range
        self.reward_range = lowest + min(0.0, self.consistent_reward), highest + max(0.0, self.consistent_reward)
        if code_length is not None and num_numbers is not None:
            codes = num_numbers**code_length if duplicate_numbers else perm(num_numbers, code_length)
            self.filters_tasks = codes >= MIN_CODES

    def setup(self) -> None:
        draw = self.rng.choices if self.duplicate_numbers else self.rng.sample
        self.code = _guess(tuple(draw(range(1, self.num_numbers + 1), k=self.code_length)))
        self.feedback: dict[str, int] = {}  # maps each guess to 100 * black + white
        self.history = ""
        self.consistent = False  # whether the last guess agreed with the feedback on all earlier guesses

    def task_key(self) -> object:
        return self.num_numbers, self.code

    def rules(self) -> str:
        repeats = (
            "A number may occur more than once."
            if self.duplicate_numbers
            else "All its numbers are different, and the numbers in a guess must also be different."
        )
        return (
            f"A secret code of {self.code_length} numbers from 1 to {self.num_numbers} has been chosen. {repeats} "
            "Find its numbers in the right order.\n"
            "Every guess is scored with pegs: one black peg for each number in the right position, and one white peg "
            "for each number that is in the code but in a different position. You are not told which numbers the pegs "
            "belong to, and each number of the code counts for at most one peg.\n"
            f"A guess is {self.code_length} numbers separated by spaces. You may not repeat a guess. "
            "A guess that breaks the rules costs a turn and is not scored."
        )

    def example_move(self) -> str:
        return _example(self.code_length, self.num_numbers)

    def parse(self, text: str) -> Guess | None:
        return _parse(text, self.num_numbers < 10)

    def step(self, action: str) -> Step:
        self.consistent = False
        step = super().step(action)
        return step._replace(reward=step.reward + self.consistent_reward) if self.consistent else step

    def play(self, move: Guess) -> tuple[int, str]:
        code, text, lowest, highest, positions, numbers = move
        if len(code) != self.code_length:
            return INVALID, f"the code has {self.code_length} numbers, but your guess has {len(code)}."
        if lowest < 1 or highest > self.num_numbers:
            return INVALID, f"{text} contains a number outside the range from 1 to {self.num_numbers}."
        if text in self.feedback:
            return INVALID, f"you have already guessed {text}."
        if not self.duplicate_numbers and numbers >> _WIDTH:
            return INVALID, f"{text} repeats a number, but all numbers in the code are different."
        black = (positions & self.code.positions).bit_count()
        pegs = (numbers & self.code.numbers).bit_count()
        self.consistent = bool(self.consistent_reward) and black < self.code_length and self._agrees(move)
        self.feedback[text] = feedback = black * 100 + pegs - black
        line = text + _PEGS[feedback]
        if self.show_history:
            self.history = f"{self.history}\n{line}" if self.history else f"Guesses so far:\n{line}"
        if black == self.code_length:
            return WON, f"{text} is the code. You win!"
        return ONGOING, f"{line}."

    def _agrees(self, guess: Guess) -> bool:
        """Return whether the feedback so far would be the same if `guess` were the code."""
        for text, feedback in self.feedback.items():
            earlier = _guess(tuple(map(int, text.split())))
            black = (guess.positions & earlier.positions).bit_count()
            if feedback != 99 * black + (guess.numbers & earlier.numbers).bit_count():
                return False
        return True

    def board(self) -> str:
        return self.history

    def solution(self) -> str:
        return f"The code was {self.code.text}."

    def progress(self) -> float:
        return max(self.feedback.values(), default=0) // 100 / self.code_length

    def random_move(self) -> str:
        draw = self.player_rng.choices if self.duplicate_numbers else self.player_rng.sample
        return _format(tuple(draw(range(1, self.num_numbers + 1), k=self.code_length)))

    def expert_move(self) -> str:
        candidates = [_guess(code) for code in islice(self._consistent_codes(), _MAX_COMPARED + 1)]
        if not candidates:  # the search reached its limit, so return any new guess
            return self._untried()
        if len(candidates) > _MAX_COMPARED:
            return candidates[0].text

        def remaining(guess: Guess) -> int:
            """Return the expected number of candidates after this guess, times the current number of candidates."""
            counts = Counter(
                ((guess.positions & code.positions).bit_count(), (guess.numbers & code.numbers).bit_count())
                for code in candidates
            )
            return sum(count**2 for count in counts.values())

        return min(candidates, key=remaining).text

    def _untried(self) -> str:
        numbers = range(1, self.num_numbers + 1)
        codes: Iterator[Code] = (
            product(numbers, repeat=self.code_length)
            if self.duplicate_numbers
            else permutations(numbers, self.code_length)
        )
        return next(text for text in map(_format, codes) if text not in self.feedback)

    def _consistent_codes(self) -> Iterator[Code]:
        """Yield codes that are consistent with all feedback so far; stop after examining `_MAX_STEPS` partial codes.

        The state of the search is one integer with two eight-bit fields per earlier guess: the number of black pegs and
        the number of all pegs that a partial code still lacks. All fields are updated by a single subtraction, and the
        top bit of each field detects negative values.
        """
        length, numbers, turn = self.code_length, self.num_numbers, len(self.feedback)
        missing = ones = 0
        black = [[0] * (numbers + 1) for _ in range(length)]  # black pegs that a number adds, as [position][number]
        # Pegs of either color that a number adds, as [earlier occurrences][number].
        both = [[0] * (numbers + 1) for _ in range(length)]
        for i, (text, pegs) in enumerate(self.feedback.items()):
            guess = tuple(map(int, text.split()))
            first, second = 1 << 16 * i, 1 << 16 * i + 8
            ones |= first | second
            blacks, whites = divmod(pegs, 100)
            missing += blacks * first + (blacks + whites) * second
            for place, number in enumerate(guess):
                black[place][number] |= first
                both[guess[:place].count(number)][number] |= second
        top = ones << 7
        max_count = length if self.duplicate_numbers else 1  # maximum occurrences of a number
        steps = _MAX_STEPS
        code: list[int] = []

        def extend(missing: int) -> Iterator[Code]:
            nonlocal steps
            place = len(code)
            if place == length:
                yield tuple(code)
                return
            room = top | (length - place - 1) * ones  # each remaining position can add at most one peg
            for i in range(numbers):
                # Start with a different number for each position and turn, which makes guesses more informative.
                number = (i + place + turn) % numbers + 1
                before = code.count(number)
                if before >= max_count:
                    continue
                steps -= 1
                if steps < 0:
                    return
                remaining = (missing | top) - black[place][number] - both[before][number]
                if remaining & top == top and (room - (remaining ^ top)) & top == top:
                    code.append(number)
                    yield from extend(remaining ^ top)
                    code.pop()

        return extend(missing)


def _guess(code: Code) -> Guess:
    positions = numbers = 0
    lowest, highest = min(code), max(code)
    if lowest >= 0 and highest <= MAX_NUMBERS:
        for place, number in enumerate(code):
            positions |= 1 << place * _WIDTH + number
            numbers |= 1 << code[:place].count(number) * _WIDTH + number
    return Guess(code, _format(code), lowest, highest, positions, numbers)


@lru_cache(maxsize=1 << 12)  # many games contain the same guesses
def _parse(text: str, one_digit: bool) -> Guess | None:
    words = text.replace(",", " ").strip(" []()").split()
    if one_digit and len(words) == 1 and words[0].isdecimal():
        words = list(words[0])  # the digits are written without spaces
    code = tuple(number for number in map(read_int, words) if number is not None)
    return _guess(code) if code and len(code) == len(words) else None


@lru_cache
def _example(length: int, numbers: int) -> str:
    return _format(tuple(i % numbers + 1 for i in range(length)))


def _format(code: Code) -> str:
    return " ".join(map(str, code))

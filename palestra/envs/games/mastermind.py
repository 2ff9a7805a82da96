"""Mastermind: find a hidden code from how many numbers of each guess are right, and how many in the right place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, permutations, product
from typing import NamedTuple, Unpack

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.errors import BadValue
from palestra.parsing import read_int

LONGEST_CODE = 8
MOST_NUMBERS = 20

Code = tuple[int, ...]

_WIDTH = MOST_NUMBERS + 1
_PEGS = {
    black * 100 + white: f" gets {black} black and {white} white"
    for black in range(LONGEST_CODE + 1)
    for white in range(LONGEST_CODE + 1 - black)
}
_FEW = 50  # so many codes the expert compares with each other
_STEPS = 30_000  # and so many it looks at, parts of codes included, before it settles for what it has


class Guess(NamedTuple):
    """A guess, or the code, with what answers are made of.

    The bits that two of them share are counted by a machine instruction, where lists would need loops.
    """

    code: Code
    shown: str
    lowest: int
    highest: int
    places: int  # a bit for every number and its place: those shared are the black pegs
    numbers: int  # a bit for every number and how often it came before: those shared are all the pegs


class Mastermind(LanguageGame):
    """A code of `code_length` numbers from 1 to `num_numbers` is hidden; guesses are answered with pegs.

    Differs from GEM: where `duplicate_numbers` is off, a guess with a repeated number is refused; more black pegs than
    before earn nothing unless `partial_credit` is on.
    The expert guesses what could be the code, and of few such codes the one that parts them best. It may need more
    guesses where the codes are so many (8 of 20, say) that it gives up looking for one that fits.
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
        **options: Unpack[GameOptions],
    ) -> None:
        if code_length is not None and not 1 <= code_length <= LONGEST_CODE:
            raise BadValue(f"code_length goes from 1 to {LONGEST_CODE}, got {code_length}")
        if num_numbers is not None and not 2 <= num_numbers <= MOST_NUMBERS:
            raise BadValue(f"num_numbers goes from 2 to {MOST_NUMBERS}, got {num_numbers}")
        if code_length is not None and num_numbers is not None and num_numbers < code_length and not duplicate_numbers:
            raise BadValue(
                f"{code_length} different numbers cannot be had from {num_numbers}: raise num_numbers, lower "
                "code_length or set duplicate_numbers=True"
            )
        self.duplicate_numbers = bool(duplicate_numbers)
        level = {"code_length": code_length, "num_numbers": num_numbers, "max_turns": max_turns}
        super().__init__(level, **options)

    def setup(self) -> None:
        draw = self.rng.choices if self.duplicate_numbers else self.rng.sample
        self.code = _guess(tuple(draw(range(1, self.num_numbers + 1), k=self.code_length)))
        self.answers: dict[str, int] = {}  # black * 100 + white of every guess
        self.history = ""

    def rules(self) -> str:
        repeats = (
            "A number may occur more than once."
            if self.duplicate_numbers
            else "All its numbers are different, and so must be those of a guess."
        )
        return (
            f"A secret code of {self.code_length} numbers from 1 to {self.num_numbers} has been chosen. {repeats} "
            "Find the code: its numbers in the right order.\n"
            "Every guess is answered with pegs: a black peg for each of its numbers that is right and in the right "
            "place, a white peg for each that is in the code, but in another place. The answer does not say which "
            "numbers the pegs are for, and each number of the code counts for one peg at most.\n"
            f"A guess is {self.code_length} numbers with blanks between them. To repeat a guess is against the rules. "
            "A guess against the rules costs a turn and gets no answer."
        )

    def example_move(self) -> str:
        return _example(self.code_length, self.num_numbers)

    def parse(self, text: str) -> Guess | None:
        return _read(text, self.num_numbers < 10)

    def play(self, move: Guess) -> tuple[int, str]:
        code, shown, lowest, highest, places, numbers = move
        if len(code) != self.code_length:
            return INVALID, f"the code has {self.code_length} numbers, your guess has {len(code)}."
        if lowest < 1 or highest > self.num_numbers:
            return INVALID, f"{shown} has a number outside 1 to {self.num_numbers}."
        if shown in self.answers:
            return INVALID, f"you guessed {shown} before."
        if not self.duplicate_numbers and numbers >> _WIDTH:
            return INVALID, f"{shown} repeats a number; all numbers of the code are different."
        black = (places & self.code.places).bit_count()
        pegs = (numbers & self.code.numbers).bit_count()
        self.answers[shown] = answer = black * 100 + pegs - black
        line = shown + _PEGS[answer]
        self.history = f"{self.history}\n{line}" if self.history else f"Guesses so far:\n{line}"
        if black == self.code_length:
            return WON, f"{shown} is the code. You win!"
        return ONGOING, f"{line}."

    def board(self) -> str:
        return self.history

    def solution(self) -> str:
        return f"The code was {self.code.shown}."

    def progress(self) -> float:
        return max(self.answers.values(), default=0) // 100 / self.code_length

    def random_move(self) -> str:
        draw = self.player_rng.choices if self.duplicate_numbers else self.player_rng.sample
        return _shown(tuple(draw(range(1, self.num_numbers + 1), k=self.code_length)))

    def expert_move(self) -> str:
        fitting = [_guess(code) for code in islice(self._fitting(), _FEW + 1)]
        if not fitting:  # the search was given up: any guess is better than none
            return self._untried()
        if len(fitting) > _FEW:
            return fitting[0].shown

        def rest(guess: Guess) -> int:
            """How many codes will still fit after this guess, on average; times their number."""
            answers = Counter(
                ((guess.places & code.places).bit_count(), (guess.numbers & code.numbers).bit_count())
                for code in fitting
            )
            return sum(count**2 for count in answers.values())

        return min(fitting, key=rest).shown

    def _untried(self) -> str:
        numbers = range(1, self.num_numbers + 1)
        codes: Iterator[Code] = (
            product(numbers, repeat=self.code_length)
            if self.duplicate_numbers
            else permutations(numbers, self.code_length)
        )
        return next(shown for shown in map(_shown, codes) if shown not in self.answers)

    def _fitting(self) -> Iterator[Code]:
        """The codes that would have got all the answers so far, as many as `_STEPS` reach.

        What is still missing of each guess's black pegs, and of all its pegs, is kept in one integer, eight bits each:
        a step then costs the same for any number of guesses. The top bit of each eight tells when they go below zero.
        """
        length, numbers, turn = self.code_length, self.num_numbers, len(self.answers)
        missing = ones = 0
        black = [[0] * (numbers + 1) for _ in range(length)]  # [place][number]: the pegs that the number adds
        both = [[0] * (numbers + 1) for _ in range(length)]  # [how often it stands before][number]
        for i, (shown, answer) in enumerate(self.answers.items()):
            guess = tuple(map(int, shown.split()))
            first, second = 1 << 16 * i, 1 << 16 * i + 8
            ones |= first | second
            blacks, whites = divmod(answer, 100)
            missing += blacks * first + (blacks + whites) * second
            for place, number in enumerate(guess):
                black[place][number] |= first
                both[guess[:place].count(number)][number] |= second
        top = ones << 7
        most = length if self.duplicate_numbers else 1  # how often a number may occur
        steps = _STEPS
        code: list[int] = []

        def extend(missing: int) -> Iterator[Code]:
            nonlocal steps
            place = len(code)
            if place == length:
                yield tuple(code)
                return
            room = top | (length - place - 1) * ones  # no more pegs may be missing than places are left
            for i in range(numbers):
                number = (i + place + turn) % numbers + 1  # first another one at every place and turn: more is learnt
                before = code.count(number)
                if before >= most:
                    continue
                steps -= 1
                if steps < 0:
                    return
                rest = (missing | top) - black[place][number] - both[before][number]
                if rest & top == top and (room - (rest ^ top)) & top == top:
                    code.append(number)
                    yield from extend(rest ^ top)
                    code.pop()

        return extend(missing)


def _guess(code: Code) -> Guess:
    places = numbers = 0
    lowest, highest = min(code), max(code)
    if lowest >= 0 and highest <= MOST_NUMBERS:
        for place, number in enumerate(code):
            places |= 1 << place * _WIDTH + number
            numbers |= 1 << code[:place].count(number) * _WIDTH + number
    return Guess(code, _shown(code), lowest, highest, places, numbers)


@lru_cache(maxsize=1 << 12)  # players write the same few guesses over and over
def _read(text: str, one_digit: bool) -> Guess | None:
    words = text.replace(",", " ").strip(" []()").split()
    if one_digit and len(words) == 1 and words[0].isdecimal():
        words = list(words[0])  # run together
    code = tuple(number for number in map(read_int, words) if number is not None)
    return _guess(code) if code and len(code) == len(words) else None


@lru_cache
def _example(length: int, numbers: int) -> str:
    return _shown(tuple(i % numbers + 1 for i in range(length)))


def _shown(code: Code) -> str:
    return " ".join(map(str, code))

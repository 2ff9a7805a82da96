"""Wordle: find a hidden word from the marks its letters get."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from operator import getitem
from string import ascii_lowercase
from typing import Unpack

from palestra.envs.games import words
from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.parsing import clip

_EXAMPLES = ("sun", "lake", "plant", "bridge", "kitchen", "mountain", "adventure", "basketball")  # 3 to 10 letters
_GREEN, _YELLOW, _GREY = ({letter: f"{letter.upper()}={sign}" for letter in ascii_lowercase} for sign in "GYX")


class Wordle(LanguageGame):
    """An everyday word of `word_length` letters (3 to 10) is hidden; every guess has its letters marked G, Y or X.

    Differs from GEM: `only_real_words` is enforced (a guess outside the word list is invalid), every observation shows
    all guesses so far with their marks, and green letters earn nothing unless `partial_credit` is on.
    The expert guesses what leaves the fewest words on average; it finds every word there is within the registered
    budgets.
    """

    title = "Wordle"
    move_name = "guess"
    levels = tuple({"word_length": length, "max_turns": 5 * length} for length in (3, 4, 5))

    word_length: int
    max_turns: int
    shared = LanguageGame.shared | {"_signs"}

    def __init__(
        self,
        *,
        word_length: int | None = 5,
        only_real_words: bool = True,
        max_turns: int | None = 20,
        **options: Unpack[GameOptions],
    ) -> None:
        words.check_length(word_length)
        self.only_real_words = only_real_words
        super().__init__({"word_length": word_length, "max_turns": max_turns}, **options)

    def setup(self) -> None:
        self.hidden = self.rng.choice(words.common(self.word_length))
        self.marked: dict[str, str] = {}  # each guess, as `mark` writes it
        self.shown = ""  # the board, grown by a line with every guess
        yellow = {letter: _YELLOW[letter] for letter in self.hidden}
        self._signs = [{**_GREY, **yellow, letter: _GREEN[letter]} for letter in self.hidden]  # by place, then letter

    def rules(self) -> str:
        n = self.word_length
        guess = f"a real English word of {n} letters" if self.only_real_words else f"any {n} letters"
        return (
            f"An everyday English word of {n} letters has been chosen. Find it.\n"
            f"A guess is {guess}. After every guess each of its letters is shown with a mark, as in A=G:\n"
            "G (green): the word has this letter in this place.\n"
            "Y (yellow): the word has this letter, but in another place.\n"
            "X: the word does not have this letter.\n"
            "A letter that you guess more often than the word has it gets G or Y only as often as the word has it; its "
            "other copies get X.\n"
            "Upper and lower case are the same. A guess made before, of another length"
            f"{' or outside the dictionary' if self.only_real_words else ''} costs a turn and is not marked."
        )

    def board(self) -> str:
        return self.shown

    def example_move(self) -> str:
        return _EXAMPLES[self.word_length - words.SHORTEST]

    def parse(self, text: str) -> str | None:
        return words.read_word(text)

    def play(self, move: str) -> tuple[int, str]:
        n = self.word_length
        if len(move) != n:
            return INVALID, f"{clip(move.upper())} has {len(move)} letters, but the word has {n}."
        shout = move.upper()
        if move in self.marked:
            return INVALID, f"you guessed {shout} before."
        if self.only_real_words and move not in words.real(n):
            return INVALID, f"{shout} is not in the dictionary. Guess a real English word of {n} letters."
        line = " ".join(map(getitem, self._signs, move))
        if "=Y" in line and len(set(move)) < n:  # a repeated letter may be yellow once too often
            line = _settle(line, move, self.hidden)
        self.marked[move] = line
        self.shown = f"{self.shown or 'Your guesses so far:'}\n{line}"
        if move == self.hidden:
            return WON, f"{shout} is the word. You win!"
        return ONGOING, f"{shout} is not the word."

    def solution(self) -> str:
        return f"The word was {self.hidden.upper()}."

    def progress(self) -> float:
        green = {i for line in self.marked.values() for i, sign in enumerate(line[2::4]) if sign == "G"}
        return len(green) / self.word_length

    def random_move(self) -> str:
        return self.player_rng.choice(words.common(self.word_length))

    def expert_move(self) -> str:
        return _best_guess(self.word_length, tuple(self.marked.items()))


def mark(guess: str, word: str) -> str:
    """`guess` with G, Y or X for each letter, as in "C=X A=Y R=G"; both in lower case and of one length."""
    pairs = [_GREEN[a] if a == word[i] else _YELLOW[a] if a in word else _GREY[a] for i, a in enumerate(guess)]
    line = " ".join(pairs)
    return line if len(set(guess)) == len(guess) else _settle(line, guess, word)


def _settle(line: str, guess: str, word: str) -> str:
    """`line`, where all copies of a letter are coloured, with only as many left so as the word has: the first ones."""
    for letter in guess:
        if guess.count(letter) > 1:
            extra = line.count(_GREEN[letter]) + line.count(_YELLOW[letter]) - word.count(letter)
            if extra > 0:
                line = _GREY[letter].join(line.rsplit(_YELLOW[letter], extra))
    return line


# What the expert works out depends on the transcript alone, so all games share it.


@lru_cache(maxsize=1024)
def _candidates(length: int, transcript: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The everyday words that would have earned these marks."""
    if not transcript:
        return words.common(length)
    guess, line = transcript[-1]
    return tuple([word for word in _candidates(length, transcript[:-1]) if mark(guess, word) == line])


@lru_cache(maxsize=1024)
def _best_guess(length: int, transcript: tuple[tuple[str, str], ...]) -> str:
    """The guess after which the fewest words remain on average, among the most promising ones."""
    candidates = _candidates(length, transcript)
    if len(candidates) <= 2:
        return candidates[0]
    counts = Counter("".join(["".join(set(word)) for word in candidates]))
    worth = {letter: min(n, len(candidates) - n) for letter, n in counts.items()}  # most when half the words have it

    def promise(word: str) -> tuple[int, str]:
        return -sum([worth.get(letter, 0) for letter in set(word)]), word

    width = max(4, min(20, 10_000 // len(candidates)))
    fitting = sorted(candidates, key=promise)[:width]
    probing = sorted(words.common(length), key=promise)[:width]

    def remaining(guess: str) -> int:
        sizes = Counter([mark(guess, word) for word in candidates])
        sizes.pop(mark(guess, guess), None)  # then nothing remains
        return sum([size * size for size in sizes.values()])

    return min((*fitting, *probing), key=remaining)

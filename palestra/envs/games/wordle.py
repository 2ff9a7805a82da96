"""Wordle: find a hidden word using feedback on each letter in a guess."""

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
    """Find a hidden everyday word of `word_length` letters (3 to 10); each letter of a guess is marked G, Y or X.

    Differences from GEM: `only_real_words` is enforced (a guess outside the word list is invalid), every observation
    contains all guesses so far with their marks, or with `show_history=False` only the last guess, and green letters
    are rewarded only with `partial_credit`.
    The expert guesses the word that leaves the fewest candidates on average; it finds every word within the registered
    variants' turn budgets.
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
        show_history: bool = True,
        **options: Unpack[GameOptions],
    ) -> None:
        words.check_length(word_length)
        self.show_history = bool(show_history)
        self.only_real_words = only_real_words
        super().__init__({"word_length": word_length, "max_turns": max_turns}, **options)

    def setup(self) -> None:
        self.hidden = self.rng.choice(words.common(self.word_length))
        self.marked: dict[str, str] = {}  # maps each guess to its letters with marks, as returned by `mark`
        self.history = ""  # the board; each guess appends a line
        yellow = {letter: _YELLOW[letter] for letter in self.hidden}
        # For each position, a dict with the mark of each letter.
        self._signs = [{**_GREY, **yellow, letter: _GREEN[letter]} for letter in self.hidden]

    def task_key(self) -> object:
        return self.hidden

    def rules(self) -> str:
        n = self.word_length
        guess = f"a real English word of {n} letters" if self.only_real_words else f"any {n} letters"
        return (
            f"An everyday English word of {n} letters has been chosen. Find it.\n"
            f"A guess is {guess}. After every guess, each of its letters is shown with a mark, as in A=G:\n"
            "G (green): the word has this letter in this position.\n"
            "Y (yellow): the word has this letter, but in another position.\n"
            "X: the word does not have this letter.\n"
            "If your guess has more copies of a letter than the word, only as many of them are marked G or Y as the "
            "word has; the others are marked X.\n"
            "Upper and lower case are treated the same. A guess that is repeated, has the wrong length"
            f"{' or is not in the dictionary' if self.only_real_words else ''} costs a turn and is not marked."
        )

    def board(self) -> str:
        return self.history

    def example_move(self) -> str:
        return _EXAMPLES[self.word_length - words.SHORTEST]

    def parse(self, text: str) -> str | None:
        return words.read_word(text)

    def play(self, move: str) -> tuple[int, str]:
        n = self.word_length
        if len(move) != n:
            return INVALID, f"{clip(move.upper())} has {len(move)} letters, but the word has {n}."
        guess = move.upper()
        if move in self.marked:
            return INVALID, f"you have already guessed {guess}."
        if self.only_real_words and move not in words.real(n):
            return INVALID, f"{guess} is not in the dictionary. Guess a real English word of {n} letters."
        line = " ".join(map(getitem, self._signs, move))
        if "=Y" in line and len(set(move)) < n:  # a repeated letter may have too many yellow marks
            line = _limit_marks(line, move, self.hidden)
        self.marked[move] = line
        if self.show_history:
            self.history = f"{self.history or 'Your guesses so far:'}\n{line}"
        if move == self.hidden:
            return WON, f"{guess} is the word. You win!"
        return ONGOING, f"{guess} is not the word{'.' if self.show_history else f': {line}'}"

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
    """Return `guess` with a mark for each letter, as in "C=X A=Y R=G"; both words are in lower case."""
    pairs = [_GREEN[a] if a == word[i] else _YELLOW[a] if a in word else _GREY[a] for i, a in enumerate(guess)]
    line = " ".join(pairs)
    return line if len(set(guess)) == len(guess) else _limit_marks(line, guess, word)


def _limit_marks(line: str, guess: str, word: str) -> str:
    """Change surplus yellow marks on repeated letters to X, from right to left.

    Afterwards, a letter has at most as many green and yellow marks as it has occurrences in the word.
    """
    for letter in guess:
        if guess.count(letter) > 1:
            extra = line.count(_GREEN[letter]) + line.count(_YELLOW[letter]) - word.count(letter)
            if extra > 0:
                line = _GREY[letter].join(line.rsplit(_YELLOW[letter], extra))
    return line


# The following functions choose the expert's guess. They depend only on the transcript, so all games share the caches.


@lru_cache(maxsize=1024)
def consistent_words(length: int, transcript: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the everyday words that are consistent with these marks."""
    if not transcript:
        return words.common(length)
    guess, line = transcript[-1]
    return tuple([word for word in consistent_words(length, transcript[:-1]) if mark(guess, word) == line])


@lru_cache(maxsize=1024)
def _best_guess(length: int, transcript: tuple[tuple[str, str], ...]) -> str:
    """Return the guess that leaves the fewest candidates on average, among the most promising guesses."""
    candidates = consistent_words(length, transcript)
    if len(candidates) <= 2:
        return candidates[0]
    counts = Counter("".join(["".join(set(word)) for word in candidates]))
    # A letter is most informative if half of the candidates contain it.
    worth = {letter: min(n, len(candidates) - n) for letter, n in counts.items()}

    def promise(word: str) -> tuple[int, str]:
        return -sum([worth.get(letter, 0) for letter in set(word)]), word

    width = max(4, min(20, 10_000 // len(candidates)))
    likely = sorted(candidates, key=promise)[:width]
    probing = sorted(words.common(length), key=promise)[:width]

    def remaining(guess: str) -> int:
        sizes = Counter([mark(guess, word) for word in candidates])
        sizes.pop(mark(guess, guess), None)  # if the guess is correct, no candidates remain
        return sum([size * size for size in sizes.values()])

    return min((*likely, *probing), key=remaining)

"""Hangman: find a hidden word by guessing letters or the whole word."""

from __future__ import annotations

from functools import cache, lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import Unpack

from palestra.envs.games import words
from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.parsing import clip


class Hangman(LanguageGame):
    """Find a hidden word of `word_length` letters (3 to 10): an everyday word or, with `hardcore`, a rare word.

    Differences from GEM: revealing the last letter wins (GEM continues), a repeated word is invalid, the board lists
    the previous guesses, and revealed letters are rewarded only with `partial_credit`.
    The expert guesses the letter that leaves the fewest words unsolved within the remaining turns. Within the
    registered variants' turn budgets, it finds all everyday words with 5 or 7 letters, but only 80% of those with 3
    letters, for which ten turns are often not enough.
    """

    title = "Hangman"
    move_name = "guess"
    levels = tuple({"word_length": length, "max_turns": turns} for length, turns in ((3, 10), (5, 15), (7, 20)))

    word_length: int
    max_turns: int

    def __init__(
        self,
        *,
        word_length: int | None = 5,
        hardcore: bool = False,
        max_turns: int | None = 20,
        **options: Unpack[GameOptions],
    ) -> None:
        words.check_length(word_length)
        self.hardcore = hardcore
        super().__init__({"word_length": word_length, "max_turns": max_turns}, **options)

    def setup(self) -> None:
        # All letters are in upper case; in `pattern`, `hits` and `misses`, they are separated by spaces.
        self.hidden = self.rng.choice(_secrets(self.word_length, self.hardcore)).upper()
        self.pattern = " ".join("_" * self.word_length)  # the hidden word, with _ for each hidden letter
        self.hits = ""  # guessed letters that are in the word
        self.misses = ""  # guessed letters that are not in the word
        self.wrong: list[str] = []  # guessed words

    def task_key(self) -> object:
        return self.hidden

    def rules(self) -> str:
        n = self.word_length
        kind = "A rare" if self.hardcore else "An everyday"
        return (
            f"{kind} English word of {n} letters has been chosen. Find it.\n"
            f"A guess is either one letter or a whole word of {n} letters.\n"
            "A correct letter is revealed everywhere it occurs in the word; _ marks a letter that is still hidden. "
            "You win when every letter is revealed, or as soon as you guess the whole word.\n"
            "Every guess costs one turn. A guess that is repeated or has the wrong length is rejected and also costs "
            "a turn. Upper and lower case are treated the same."
        )

    def board(self) -> str:
        board = f"Word: {self.pattern}\nIn the word:{self.hits}\nNot in the word:{self.misses}"
        return f"{board}\nWords tried: {' '.join(self.wrong)}" if self.wrong else board

    def example_move(self) -> str:
        return "e"

    def parse(self, text: str) -> str | None:
        word = words.read_word(text)
        return None if word is None else word.upper()

    def play(self, move: str) -> tuple[int, str]:
        if len(move) == 1:
            if move in self.hits or move in self.misses:
                return INVALID, f"you have already tried the letter {move}."
            if move not in self.hidden:
                self.misses += f" {move}"
                return ONGOING, f"{move} is not in the word."
            hits = self.hits = f"{self.hits} {move}"
            self.pattern = " ".join([letter if letter in hits else "_" for letter in self.hidden])
            if "_" in self.pattern:
                return ONGOING, f"{move} is in the word."
            return WON, f"{move} completes the word {self.hidden}. You win!"
        if len(move) != self.word_length:
            n = self.word_length
            return INVALID, f"{clip(move)} has {len(move)} letters. Guess one letter or a word of {n} letters."
        if move in self.wrong:
            return INVALID, f"you have already tried the word {move}."
        if move != self.hidden:
            self.wrong.append(move)
            return ONGOING, f"{move} is not the word."
        self.pattern = " ".join(move)
        return WON, f"{move} is the word. You win!"

    def solution(self) -> str:
        return f"The word was {self.hidden}."

    def progress(self) -> float:
        return 1.0 - self.pattern.count("_") / self.word_length

    def random_move(self) -> str:
        tried = self.hits + self.misses
        untried = [letter for letter in ascii_uppercase if letter not in tried]
        return self.player_rng.choice(untried or ascii_uppercase).lower()

    def expert_move(self) -> str:
        length, hardcore = self.word_length, self.hardcore
        secrets, places = _secrets(length, hardcore), _places(length, hardcore)
        candidates = (1 << len(secrets)) - 1
        for letter in self.misses.lower().split():
            candidates &= places[letter][0]
        revealed = self.pattern[::2].lower()
        for letter in self.hits.lower().split():
            candidates &= places[letter][_mask(letter, revealed)]
        for word in self.wrong:
            if word.lower() in secrets:
                candidates &= ~(1 << secrets.index(word.lower()))
        return _best_guess(length, hardcore, candidates, self.max_turns - self.turn)


def _secrets(length: int, hardcore: bool) -> tuple[str, ...]:
    return words.rare(length) if hardcore else words.common(length)


# The following functions choose the expert's guess. A set of words is an int with one bit per word. All games share the
# caches.


def _mask(letter: str, word: str) -> int:
    """Return a bit mask of the positions of `letter` in `word`."""
    return sum([1 << i for i, other in enumerate(word) if other == letter])


@cache
def _places(length: int, hardcore: bool) -> dict[str, dict[int, int]]:
    """Return {letter: {mask of positions: set of words with the letter at exactly these positions}}."""
    secrets = _secrets(length, hardcore)
    table: dict[str, dict[int, int]] = {letter: {} for letter in ascii_lowercase}
    for number, word in enumerate(secrets):
        for letter in sorted(set(word)):
            where = _mask(letter, word)
            table[letter][where] = table[letter].get(where, 0) | 1 << number
    for groups in table.values():
        groups[0] = (1 << len(secrets)) - 1 - sum(groups.values())
    return table


def _splits(length: int, hardcore: bool, candidates: int) -> list[tuple[float, str, list[int]]]:
    """Return the letters that split `candidates`, starting with the best, as (score, letter, resulting subsets)."""
    splits = []
    for letter, groups in _places(length, hardcore).items():
        parts = [part for group in groups.values() if (part := candidates & group)]
        if len(parts) > 1:
            splits.append((sum([part.bit_count() ** 1.5 for part in parts]), letter, parts))
    return sorted(splits)


@lru_cache(maxsize=8192)
def _losses(length: int, hardcore: bool, candidates: int, turns: int) -> int:
    """Return the number of words in `candidates` that remain unsolved after `turns` turns with the best splits."""
    count = candidates.bit_count()
    if count <= turns:
        return 0  # there are enough turns to guess the words one by one
    if turns <= 1:
        return count - turns
    parts = _splits(length, hardcore, candidates)[0][2]
    return min(count - turns, sum([_losses(length, hardcore, part, turns - 1) for part in parts]))


@lru_cache(maxsize=1024)
def _best_guess(length: int, hardcore: bool, candidates: int, turns: int) -> str:
    count = candidates.bit_count()
    word = _secrets(length, hardcore)[(candidates & -candidates).bit_length() - 1]
    if count == 1:
        return word
    splits = _splits(length, hardcore, candidates)
    if count <= turns:  # every word can be found in time, so minimize the expected number of turns
        return splits[0][1] if splits[0][0] < (count - 1) ** 1.5 else word
    best, guess = count - turns, word
    for _, letter, parts in splits[:3]:
        losses = sum([_losses(length, hardcore, part, turns - 1) for part in parts])
        if losses < best:
            best, guess = losses, letter
        if not losses:
            break
    return guess

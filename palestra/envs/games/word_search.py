"""Word Search: find the listed words in a grid of letters."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any, Unpack

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.envs.games.words import common, rare
from palestra.errors import BadValue
from palestra.parsing import read_ints

MAX_WORDS = 50
LENGTHS = range(3, 9)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_MARKS = str.maketrans(dict.fromkeys("[](),;:RrCc", " "))

Move = tuple[int, int, int, int]  # row and column of one end, then row and column of the other end


class WordSearch(LanguageGame):
    """Find `num_words` words, written across or down in a letter grid; a move specifies both ends of a word.

    `hardcore` selects rarer words.

    Differences from GEM: the words to find are listed (GEM does not state which words count), and every occurrence of a
    listed word is accepted. The expert searches the visible grid, so it always wins.
    """

    title = "Word Search"

    num_words: int
    hardcore: bool
    max_turns: int

    def __init__(
        self,
        *,
        num_words: int | None = 5,
        hardcore: bool | None = False,
        max_turns: int | None = 20,
        **options: Unpack[GameOptions],
    ) -> None:
        if num_words is not None and num_words not in range(1, MAX_WORDS + 1):
            raise BadValue(f"num_words must be a whole number from 1 to {MAX_WORDS}, got {num_words!r}")
        if max_turns is not None and max_turns < (num_words or 1):
            raise BadValue(f"max_turns must be at least num_words (one turn per word), got {max_turns!r}")
        super().__init__({"num_words": num_words, "hardcore": hardcore, "max_turns": max_turns}, **options)

    def draw_level(self) -> Mapping[str, Any]:
        count, hardcore, turns = (self._level[name] for name in ("num_words", "hardcore", "max_turns"))
        if count is None:
            count = self.rng.randint(4, 6)
            if turns is not None:
                count = min(count, turns)
        if hardcore is None:
            hardcore = self.rng.random() < 0.5
        if turns is None:
            turns = 4 * count
        return {"num_words": count, "hardcore": hardcore, "max_turns": turns}

    def setup(self) -> None:
        self.words = self._draw_words()  # longest first
        letters = sum(map(len, self.words))
        # As in GEM, the side of the grid is 1.5 times the longest word. It is larger if the words would otherwise fill
        # more than half of the cells.
        self.size = max(round(1.5 * len(self.words[0])), isqrt(2 * letters) + 1)
        while not self._place():
            self.size += 1
        self.found: list[str] = []
        self.tried: set[tuple[int, int]] = set()  # (first cell, last cell) of previous moves
        self._lines = ["    " + " ".join([f"C{column:<2}" for column in range(self.size)]).rstrip()]
        for row in range(self.size):
            self._lines.append(f"R{row:<3} " + "   ".join(self.letters[row * self.size : (row + 1) * self.size]))
        self._lines += ["", "", ""]
        self._show_words()

    def _draw_words(self) -> list[str]:
        """Sample words such that no word contains another word."""
        pick = rare if self.hardcore else common
        words: list[str] = []
        while len(words) < self.num_words:
            word = self.rng.choice(pick(self.rng.choice(LENGTHS))).upper()
            if not any(word in other or other in word for other in words):
                words.append(word)
        return sorted(words, key=len, reverse=True)

    def _place(self) -> bool:
        """Place the words in the grid and fill it with random letters; return False if a word did not fit."""
        size = self.size
        grid = [""] * (size * size)
        for word in self.words:
            length = len(word)
            for _ in range(100):
                along = self.rng.randrange(size - length + 1)
                line = self.rng.randrange(size)
                if self.rng.random() < 0.5:
                    cells = range(line * size + along, line * size + along + length)
                else:
                    cells = range(along * size + line, (along + length) * size + line, size)
                if all(grid[cell] in ("", letter) for cell, letter in zip(cells, word, strict=True)):
                    break
            else:
                return False
            for cell, letter in zip(cells, word, strict=True):
                grid[cell] = letter
        filler = self.rng.choices(ALPHABET, k=size * size)
        self.letters = "".join([letter or other for letter, other in zip(grid, filler, strict=True)])
        return True

    def task_key(self) -> object:
        return self.letters

    def rules(self) -> str:
        return (
            f"Find the {self.num_words} words listed below in the grid of letters. They run across (left to right) or "
            "down (top to bottom), never diagonally or backwards, and may share letters.\n"
            "Rows and columns are numbered from 0: R0 is the top row, C0 is the leftmost column. Letters of words that "
            "you have found are shown in square brackets.\n"
            "A move marks one word with four numbers separated by spaces: the row and column of one end, then the row "
            "and column of the other end. Every occurrence of a listed word counts. Every move costs a turn, even if "
            "it marks no listed word, or is rejected because it repeats a line or a word, leaves the grid or is "
            "diagonal.\n"
            "You win when every listed word is found."
        )

    def example_move(self) -> str:
        return f"0 1 0 {min(self.size - 1, 4)}"

    def parse(self, text: str) -> Move | None:
        numbers = read_ints(text.translate(_MARKS), 4)
        if numbers is None:
            return None
        row, column, end_row, end_column = numbers
        return row, column, end_row, end_column

    def play(self, move: Move) -> tuple[int, str]:
        row, column, end_row, end_column = move
        size = self.size
        if min(move) < 0 or max(move) >= size:
            return INVALID, f"that line leaves the grid: rows and columns are numbered from 0 to {size - 1}."
        if row != end_row and column != end_column:
            return INVALID, "that line is neither across nor down: both ends must share a row or a column."
        if row > end_row or column > end_column:
            row, column, end_row, end_column = end_row, end_column, row, column
        first, last = row * size + column, end_row * size + end_column
        if (first, last) in self.tried:
            return INVALID, "you have already tried that line."
        cells = range(first, last + 1, 1 if row == end_row else size)
        word = "".join([self.letters[cell] for cell in cells])
        if word in self.found:
            return INVALID, f"you have already found {word}; look for the other words."
        self.tried.add((first, last))
        if word not in self.words:
            return ONGOING, f"{word} is not one of the words."
        self.found.append(word)
        for cell in cells:
            self._mark(cell)
        self._show_words()
        if len(self.found) == len(self.words):
            return WON, f"{word} is the last word. You win!"
        return ONGOING, f"{word} is one of the words."

    def _mark(self, cell: int) -> None:
        row, column = divmod(cell, self.size)
        line, at = self._lines[row + 1], 4 + 4 * column
        self._lines[row + 1] = f"{line[:at]}[{self.letters[cell]}]{line[at + 3 :]}"

    def _show_words(self) -> None:
        left = self._missing()
        self._lines[-2] = f"Words to find: {', '.join(left) if left else 'none'}"
        self._lines[-1] = f"Words found: {', '.join(self.found) if self.found else 'none'}"

    def _missing(self) -> list[str]:
        return [word for word in self.words if word not in self.found]

    def board(self) -> str:
        return "\n".join(self._lines)

    def solution(self) -> str:
        places = [f"{word} ({self._where(word)})" for word in self._missing()]
        return f"Words not found: {', '.join(places)}."

    def progress(self) -> float:
        return len(self.found) / len(self.words)

    def random_move(self) -> str:
        rng = self.player_rng
        length = len(rng.choice(self._missing() or self.words))
        line = rng.randrange(self.size)
        start = rng.randrange(self.size - length + 1)
        end = start + length - 1
        return f"{line} {start} {line} {end}" if rng.random() < 0.5 else f"{start} {line} {end} {line}"

    def expert_move(self) -> str:
        missing = self._missing()
        return self._where(missing[0]) if missing else self.example_move()

    def _where(self, word: str) -> str:
        """Return the first occurrence of `word` in the visible grid, as a move."""
        size, reach = self.size, len(word) - 1
        for line in range(size):
            start = self.letters[line * size : (line + 1) * size].find(word)
            if start >= 0:
                return f"{line} {start} {line} {start + reach}"
            start = self.letters[line::size].find(word)
            if start >= 0:
                return f"{start} {line} {start + reach} {line}"
        raise AssertionError(f"{word} is missing from the grid")

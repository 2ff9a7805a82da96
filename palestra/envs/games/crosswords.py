"""Crosswords: fill a small crossword from its clues, one letter per turn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pkgutil import get_data
from random import Random
from typing import Any, NamedTuple, Unpack

from palestra.envs.games.base import INVALID, ONGOING, WON, GameOptions, LanguageGame
from palestra.errors import BadValue
from palestra.parsing import read_int
from palestra.spec import fingerprint, split_of

MAX_WORDS = 15
CELLS_PER_WORD = 4  # cells reserved for each further word: five letters, one of them shared with another word
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_DOWN = 256  # offset to the cell below; a layout numbers its cells row * _DOWN + column
_MIDDLE = 128 * _DOWN + 128  # far enough from the edges for any layout of MAX_WORDS words
_MARKS = str.maketrans(dict.fromkeys("[](),;:'\"", " "))

Placement = tuple[str, int, int]  # word, first cell, step to the next cell (1 or _DOWN)


class Entry(NamedTuple):
    """A clue and the cells of its word."""

    clue: str
    cells: tuple[int, ...]  # cells that contain the letters, from first to last
    line: str  # number, direction, start, length and clue, as displayed on the board


@cache
def clues(hardcore: bool) -> dict[str, str]:
    """Return the public list of clues as {word: clue}, for everyday words or, with `hardcore`, for rarer words."""
    data = get_data(__package__, "data/crosswords.tsv")
    assert data is not None  # noqa: S101  # the file is part of the package
    rows = [line.split("\t") for line in data.decode("ascii").splitlines()]
    return {word.upper(): clue for level, word, clue in rows if level == ("hard" if hardcore else "easy")}


@cache
def answers() -> dict[str, str]:
    """Return {clue: word} for all words in the public list."""
    return {clue: word for hardcore in (False, True) for word, clue in clues(hardcore).items()}


@cache
def _pool(hardcore: bool, split: str | None) -> tuple[str, ...]:
    """Return the words in a split, so that no clue in a test puzzle occurs in training."""
    return tuple(word for word in clues(hardcore) if split is None or split_of(fingerprint(word)) == split)


class Crosswords(LanguageGame):
    """Fill a grid of `num_words` crossing words, one letter per turn; `hardcore` selects rarer words.

    Differences from GEM: every word crosses another word, and words touch only where they cross. Each clue states where
    its word starts. No grid has more cells to fill than the turn budget allows. The clues were written for this game,
    and each has exactly one answer. The expert looks up the answers in the public list of clues, so it always wins.
    """

    title = "Crosswords"
    filters_tasks = False  # `_pool` holds words out
    shared = LanguageGame.shared | {"entries"}

    num_words: int
    hardcore: bool
    max_turns: int

    def __init__(
        self,
        *,
        num_words: int | None = 5,
        hardcore: bool | None = False,
        max_turns: int | None = 100,
        **options: Unpack[GameOptions],
    ) -> None:
        if num_words is not None and num_words not in range(1, MAX_WORDS + 1):
            raise BadValue(f"num_words must be a whole number from 1 to {MAX_WORDS}, got {num_words!r}")
        min_turns = CELLS_PER_WORD * (3 if num_words is None else num_words)
        if max_turns is not None and max_turns < min_turns:
            raise BadValue(
                f"max_turns must be at least {min_turns} ({CELLS_PER_WORD} per word) so that the grid can be filled, "
                f"got {max_turns!r}"
            )
        super().__init__({"num_words": num_words, "hardcore": hardcore, "max_turns": max_turns}, **options)

    def draw_level(self) -> Mapping[str, Any]:
        words, hardcore, turns = (self._level[name] for name in ("num_words", "hardcore", "max_turns"))
        if words is None:
            words = self.rng.randint(3, 4 if turns is None else min(4, turns // CELLS_PER_WORD))
        if hardcore is None:
            hardcore = self.rng.random() < 0.5
        if turns is None:
            turns = 10 * words + (10 if hardcore else 0)
        return {"num_words": words, "hardcore": hardcore, "max_turns": turns}

    def setup(self) -> None:
        layout = None
        while layout is None:
            layout = _make_layout(self.rng, _pool(self.hardcore, self.split), self.num_words, self.max_turns)
        filled = {first + step * i: letter for word, first, step in layout for i, letter in enumerate(word)}
        top, left, bottom, right = _bounds(filled)
        width = self.width = right - left + 1
        height = self.height = bottom - top + 1
        self.letters = "".join(
            filled.get(row * _DOWN + column, ".") for row in range(top, bottom + 1) for column in range(left, right + 1)
        )
        self.cells = ["." if letter == "." else "_" for letter in self.letters]  # cells as displayed to the player
        self.empty = len(filled)
        self.entries = _entries(layout, top, left, width, clues(self.hardcore))
        self._lines = ["    " + " ".join([f"C{column:<2}" for column in range(width)]).rstrip()]
        for row in range(height):
            self._lines.append(f"R{row:<3} " + "   ".join(self.cells[row * width : (row + 1) * width]))
        self._lines.append("")
        self._lines += [entry.line for entry in self.entries]

    def task_key(self) -> object:
        return self.letters, [entry.line for entry in self.entries]

    def rules(self) -> str:
        return (
            "Fill the crossword below, one letter per turn. Every clue states the direction of its word (across: left "
            "to right, down: top to bottom), the cell of its first letter and its length.\n"
            "Rows and columns are numbered from 0: R0 is the top row, C0 is the leftmost column. In the grid, _ is an "
            "empty cell, a letter is a cell that you have filled, and . is a cell that belongs to no word.\n"
            "A move is a row, a column and a letter, separated by spaces. A correct letter is written into the grid; a "
            "wrong letter is reported and not written. Both cost a turn. You can only choose empty cells; any other "
            "choice is rejected and also costs a turn.\n"
            "You win when every cell is filled."
        )

    def example_move(self) -> str:
        row, column = divmod(self.entries[0].cells[0], self.width)
        return f"{row} {column} E"

    def parse(self, text: str) -> tuple[int, int, str] | None:
        fields = text.translate(_MARKS).split()
        if len(fields) != 3:
            return None
        row = read_int(fields[0].lstrip("Rr"))
        column = read_int(fields[1].lstrip("Cc"))
        letter = fields[2].upper()
        if row is None or column is None or len(letter) != 1 or letter not in ALPHABET:
            return None
        return row, column, letter

    def play(self, move: tuple[int, int, str]) -> tuple[int, str]:
        row, column, letter = move
        if not (0 <= row < self.height and 0 <= column < self.width):
            return INVALID, (
                f"row {row}, column {column} is outside the grid: rows are numbered from 0 to {self.height - 1} "
                f"and columns from 0 to {self.width - 1}."
            )
        cell = row * self.width + column
        seen = self.cells[cell]
        if seen == ".":
            return INVALID, f"row {row}, column {column} belongs to no word. Choose a cell marked _."
        if seen != "_":
            return INVALID, f"row {row}, column {column} is already filled with {seen}."
        if self.letters[cell] != letter:
            return ONGOING, f"{letter} is wrong at row {row}, column {column}."
        self._write(row, column, letter)
        if self.empty == 0:
            return WON, f"{letter} is correct at row {row}, column {column}. The crossword is complete. You win!"
        return ONGOING, f"{letter} is correct at row {row}, column {column}."

    def _write(self, row: int, column: int, letter: str) -> None:
        cell = row * self.width + column
        self.cells[cell] = letter
        self.empty -= 1
        line = self._lines[row + 1]
        at = 5 + 4 * column
        self._lines[row + 1] = f"{line[:at]}{letter}{line[at + 1 :]}"
        for number, entry in enumerate(self.entries, self.height + 2):
            if cell in entry.cells:
                word = "".join([self.cells[i] for i in entry.cells])
                if "_" not in word:
                    self._lines[number] = f"{entry.line} (solved: {word})"

    def board(self) -> str:
        return "\n".join(self._lines)

    def solution(self) -> str:
        words = ["".join([self.letters[cell] for cell in entry.cells]) for entry in self.entries]
        return f"The words were {', '.join(words)}."

    def progress(self) -> float:
        cells = len(self.cells) - self.cells.count(".")
        return 1.0 - self.empty / cells

    def random_move(self) -> str:
        empty = [i for i, seen in enumerate(self.cells) if seen == "_"]
        cell = self.player_rng.choice(empty or range(len(self.cells)))
        row, column = divmod(cell, self.width)
        return f"{row} {column} {self.player_rng.choice(ALPHABET)}"

    def expert_move(self) -> str:
        for entry in self.entries:
            for cell, letter in zip(entry.cells, answers()[entry.clue], strict=True):
                if self.cells[cell] == "_":
                    row, column = divmod(cell, self.width)
                    return f"{row} {column} {letter}"
        return self.example_move()


def _make_layout(rng: Random, pool: tuple[str, ...], num_words: int, max_cells: int) -> list[Placement] | None:
    """Try to arrange `num_words` random words from `pool` in at most `max_cells` cells; return None if this fails."""
    # `room` is the number of cells that the next word may add; it leaves enough cells for the words after it.
    room = max_cells - CELLS_PER_WORD * (num_words - 1)
    word = rng.choice(pool)
    while len(word) > room:
        word = rng.choice(pool)
    layout = [(word, _MIDDLE, rng.choice((1, _DOWN)))]
    grid = {_MIDDLE + i * layout[0][2]: letter for i, letter in enumerate(word)}
    room += CELLS_PER_WORD - len(word)
    tried = {word}
    for _ in range(40 * num_words):
        if len(layout) == num_words:
            return layout
        word = rng.choice(pool)
        if word in tried:
            continue
        tried.add(word)
        best = _best_places(grid, word, room)
        if best:
            first, step = rng.choice(best)
            layout.append((word, first, step))
            before = len(grid)
            grid.update({first + i * step: letter for i, letter in enumerate(word)})
            room += CELLS_PER_WORD - (len(grid) - before)
    return layout if len(layout) == num_words else None


def _best_places(grid: dict[int, str], word: str, room: int) -> list[tuple[int, int]]:
    """Return the placements of `word` that result in the smallest grid.

    Each placement crosses another word and adds at most `room` cells.
    """
    best: list[tuple[int, int]] = []
    min_area = 1 << 30
    top, left, bottom, right = _bounds(grid)
    for cell, crossing in grid.items():
        if crossing not in word:
            continue
        if cell - 1 not in grid and cell + 1 not in grid:
            step = 1
        elif cell - _DOWN not in grid and cell + _DOWN not in grid:
            step = _DOWN
        else:
            continue  # two words already cross here
        for i, letter in enumerate(word):
            first = cell - i * step
            if letter != crossing or not _fits(grid, word, first, step, room):
                continue
            row, column = divmod(first, _DOWN)
            last_row, last_column = divmod(first + (len(word) - 1) * step, _DOWN)
            height = max(bottom, last_row) - min(top, row) + 1
            area = height * (max(right, last_column) - min(left, column) + 1)
            if area < min_area:
                min_area = area
                best.clear()
            if area == min_area:
                best.append((first, step))
    return best


def _fits(grid: dict[int, str], word: str, first: int, step: int, room: int) -> bool:
    """Return whether `word` fits at `first`: it adds at most `room` cells and touches other words only by crossing."""
    if first - step in grid or first + len(word) * step in grid:
        return False
    side = _DOWN + 1 - step
    cell = first
    for letter in word:
        present = grid.get(cell)
        if present is None:
            room -= 1
            if room < 0 or cell - side in grid or cell + side in grid:
                return False
        elif present != letter or cell - step in grid or cell + step in grid:  # different letter or parallel overlap
            return False
        cell += step
    return True


def _bounds(grid: Mapping[int, str]) -> tuple[int, int, int, int]:
    rows = [cell // _DOWN for cell in grid]
    columns = [cell % _DOWN for cell in grid]
    return min(rows), min(columns), max(rows), max(columns)


def _entries(layout: list[Placement], top: int, left: int, width: int, clue_of: Mapping[str, str]) -> tuple[Entry, ...]:
    """Return the numbered clues in reading order, across before down."""
    entries = []
    number, last = 0, -1
    for first, step, word in sorted((first, step, word) for word, first, step in layout):
        if first != last:
            number, last = number + 1, first
        row, column = first // _DOWN - top, first % _DOWN - left
        stride = 1 if step == 1 else width
        cell = row * width + column
        clue = clue_of[word]
        line = (
            f"{number} {'across' if step == 1 else 'down'}, starts at row {row}, column {column}, "
            f"{len(word)} letters: {clue}"
        )
        entries.append(Entry(clue, tuple(range(cell, cell + stride * len(word), stride)), line))
    return tuple(entries)

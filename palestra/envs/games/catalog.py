"""Catalog of the games (data only), with GEM's ids and arguments.

`benchmarks/rates.py` measures the success rates.
"""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec

# Success rates for the echo and constant players; both are 0 in the other games.
_UNEARNED = {
    "GuessTheNumber-v0-easy": (0.27, 0.127),
    "GuessTheNumber-v0-hard": (0.107, 0.037),
    "GuessTheNumber-v0-random": (0.09, 0.04),
    "Mastermind-v0-easy": (0.0, 0.033),
    "Mastermind-v0-hard": (0.0, 0.003),
    "Mastermind-v0-random": (0.0, 0.047),
    "Minesweeper-v0-easy": (0.0, 0.003),
    "Wordle-v0-easy": (0.0, 0.007),
    "Hangman-v0-easy": (0.0, 0.013),
    "Hangman-v0-hard": (0.0, 0.003),
    "Hangman-v0-random": (0.0, 0.003),
    "Game2048-v0-random": (0.0, 0.022),
    "WikiGame-v0-easy": (0.067, 0.0),
}
_EASY = frozenset({"Game2048-v0-easy", "Game2048-v0-random"})  # random play often wins, as in GEM


def _game(
    env_id: str,
    entry: str,
    summary: str,
    expert: float,
    random: float,
    *,
    seeded: bool = True,
    held_out: bool = True,
    **kwargs: Any,
) -> EnvSpec:
    echo, constant = _UNEARNED.get(env_id, (0.0, 0.0))
    return EnvSpec(
        id=f"game:{env_id}",
        entry_point=f"palestra.envs.games.{entry}",
        kwargs=kwargs,
        summary=summary,
        reward_range=(-0.1, 1.0),
        expert_success=expert,
        random_success=random,
        echo_success=echo,
        constant_success=constant,
        rates_reason="easy_by_design" if env_id in _EASY else "",
        seeded=seeded,
        splits=("train", "test") if held_out else (),
    )


_GUESS = ("guess_the_number:GuessTheNumber", "guess a number using higher/lower hints")
_MASTERMIND = ("mastermind:Mastermind", "find a secret code of numbers using black and white pegs")
_MINES = ("minesweeper:Minesweeper", "reveal every cell without a mine")
_WORDLE = ("wordle:Wordle", "guess a word using feedback on each letter")
_FIFTEEN = ("fifteen_puzzle:FifteenPuzzle", "slide the tiles into order")
_HANGMAN = ("hangman:Hangman", "guess a word letter by letter")
_SUDOKU = ("sudoku:Sudoku", "fill the grid, one cell per turn")
_HANOI = ("tower_of_hanoi:TowerofHanoi", "move a tower of disks without placing a disk on a smaller one")
_2048 = ("game_2048:Game2048", "slide and merge tiles until the target tile appears")
_SOKOBAN = ("sokoban:Sokoban", "push every box onto a goal")
_CROSS = ("crosswords:Crosswords", "fill a crossword, one letter per turn")
_WIKI = ("wiki_game:WikiGame", "reach a target page in an encyclopedia by following links")
_SEARCH = ("word_search:WordSearch", "find the listed words in a grid of letters")

# Arguments that are None are sampled for every episode.
SPECS = [
    _game("GuessTheNumber-v0-easy", *_GUESS, 1.0, 0.34, held_out=False, min_number=1, max_number=10, max_turns=4),
    _game("GuessTheNumber-v0-hard", *_GUESS, 1.0, 0.13, held_out=False, min_number=1, max_number=50, max_turns=7),
    _game(
        "GuessTheNumber-v0-random", *_GUESS, 1.0, 0.25, held_out=False, min_number=None, max_number=None, max_turns=None
    ),
    _game("Mastermind-v0-easy", *_MASTERMIND, 1.0, 0.284, held_out=False, code_length=2, num_numbers=6, max_turns=10),
    _game("Mastermind-v0-hard", *_MASTERMIND, 1.0, 0.017, code_length=4, num_numbers=8, max_turns=30),
    _game("Mastermind-v0-random", *_MASTERMIND, 1.0, 0.222, code_length=None, num_numbers=None, max_turns=None),
    _game("Minesweeper-v0-easy", *_MINES, 0.799, 0.015, rows=5, cols=5, num_mines=5, max_turns=25),
    _game("Minesweeper-v0-hard", *_MINES, 0.81, 0.0, rows=8, cols=8, num_mines=12, max_turns=64),
    _game("Minesweeper-v0-random", *_MINES, 0.863, 0.004, rows=None, cols=None, num_mines=None, max_turns=None),
    _game("Wordle-v0-easy", *_WORDLE, 1.0, 0.041, word_length=3, max_turns=15),
    _game("Wordle-v0-hard", *_WORDLE, 1.0, 0.01, word_length=5, max_turns=25),
    _game("Wordle-v0-random", *_WORDLE, 1.0, 0.02, word_length=None, max_turns=None),
    _game("FifteenPuzzle-v0-easy", *_FIFTEEN, 1.0, 0.283, held_out=False, num_rows=2, max_turns=10),
    _game("FifteenPuzzle-v0-hard", *_FIFTEEN, 1.0, 0.0, num_rows=4, max_turns=50),
    _game("FifteenPuzzle-v0-random", *_FIFTEEN, 1.0, 0.098, num_rows=None, max_turns=None),
    _game("Hangman-v0-easy", *_HANGMAN, 0.8, 0.053, word_length=3, max_turns=10),
    _game("Hangman-v0-hard", *_HANGMAN, 1.0, 0.156, word_length=7, max_turns=20),
    _game("Hangman-v0-random", *_HANGMAN, 0.93, 0.097, word_length=None, max_turns=None),
    _game("Sudoku-v0-easy", *_SUDOKU, 1.0, 0.141, scale=4, clues=10, max_turns=15),
    _game("Sudoku-v0-hard", *_SUDOKU, 1.0, 0.0, scale=9, clues=50, max_turns=50),
    _game("Sudoku-v0-random", *_SUDOKU, 1.0, 0.069, scale=None, clues=None, max_turns=None),
    _game("TowerofHanoi-v0-easy", *_HANOI, 1.0, 0.006, held_out=False, seeded=False, num_disks=3, max_turns=10),
    _game("TowerofHanoi-v0-hard", *_HANOI, 1.0, 0.0, held_out=False, seeded=False, num_disks=5, max_turns=35),
    _game("TowerofHanoi-v0-random", *_HANOI, 1.0, 0.002, held_out=False, num_disks=None, max_turns=None),
    _game("Game2048-v0-easy", *_2048, 0.999, 0.393, held_out=False, target_tile=64, max_turns=50),
    _game("Game2048-v0-hard", *_2048, 0.983, 0.0, held_out=False, target_tile=512, max_turns=300),
    _game("Game2048-v0-extreme-hard", *_2048, 0.967, 0.0, held_out=False, target_tile=2048, max_turns=1200),
    _game("Game2048-v0-random", *_2048, 0.999, 0.64, held_out=False, target_tile=None, max_turns=None),
    _game("Sokoban-v0-easy", *_SOKOBAN, 1.0, 0.013, dim_room=(6, 6), num_boxes=2, max_turns=20),
    _game("Sokoban-v0-hard", *_SOKOBAN, 1.0, 0.0, dim_room=(8, 8), num_boxes=4, max_turns=50),
    _game("Sokoban-v0-random", *_SOKOBAN, 1.0, 0.006, dim_room=None, num_boxes=None, max_turns=None),
    _game("Crosswords-v0-easy", *_CROSS, 1.0, 0.0, num_words=3, hardcore=False, max_turns=30),
    _game("Crosswords-v0-hard", *_CROSS, 1.0, 0.0, num_words=3, hardcore=True, max_turns=40),
    _game("Crosswords-v0-random", *_CROSS, 1.0, 0.0, num_words=None, hardcore=None, max_turns=None),
    _game("WordSearch-v0-easy", *_SEARCH, 1.0, 0.0, num_words=5, hardcore=False, max_turns=20),
    _game("WordSearch-v0-hard", *_SEARCH, 1.0, 0.0, num_words=5, hardcore=True, max_turns=20),
    _game("WordSearch-v0-random", *_SEARCH, 1.0, 0.0, num_words=None, hardcore=None, max_turns=None),
    _game("WikiGame-v0-easy", *_WIKI, 1.0, 0.07, max_turns=30, min_distance=2, max_distance=3),
    _game("WikiGame-v0-hard", *_WIKI, 1.0, 0.01, max_turns=15, min_distance=4, max_distance=6),
    _game("WikiGame-v0-random", *_WIKI, 1.0, 0.04, max_turns=None, min_distance=None, max_distance=None),
]

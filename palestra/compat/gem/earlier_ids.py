"""Ids that earlier versions of GEM registered (data only). GEM's examples still use `game:GuessTheNumber-v0`."""

from __future__ import annotations

from typing import Any

_GAMES = "gem.envs.game_env"
EARLIER_IDS: dict[str, tuple[str, dict[str, Any]]] = {  # id -> entry point and keyword arguments
    "game:FifteenPuzzle-v0": (f"{_GAMES}.fifteen_puzzle:FifteenPuzzleEnv", {"num_rows": 3, "max_turns": 20}),
    "game:GuessTheNumber-v0": (
        f"{_GAMES}.guess_the_number:GuessTheNumberEnv",
        {"min_number": 1, "max_number": 20, "max_turns": 10},
    ),
    "game:GuessTheNumber-v0-hard-no-max-turn": (
        f"{_GAMES}.guess_the_number:GuessTheNumberEnv",
        {"min_number": 1, "max_number": 50, "max_turns": 50},
    ),
    "game:Hangman-v0": (
        f"{_GAMES}.hangman:HangmanEnv",
        {"word_length": 5, "hardcore": False, "max_turns": 15},
    ),
    "game:Mastermind-v0": (
        f"{_GAMES}.mastermind:MastermindEnv",
        {"code_length": 4, "num_numbers": 6, "max_turns": 20, "duplicate_numbers": False},
    ),
    "game:Minesweeper-v0": (
        f"{_GAMES}.minesweeper:MinesweeperEnv",
        {"rows": 8, "cols": 8, "num_mines": 10, "max_turns": 100},
    ),
    "game:Minesweeper-v0-very-easy": (
        f"{_GAMES}.minesweeper:MinesweeperEnv",
        {"rows": 3, "cols": 3, "num_mines": 1, "max_turns": 10},
    ),
    "game:Sudoku-v0": (f"{_GAMES}.sudoku:SudokuEnv", {"clues": 50, "max_turns": 50, "scale": 9}),
    "game:TowerofHanoi-v0": (f"{_GAMES}.tower_of_hanoi:TowerofHanoiEnv", {"num_disks": 4, "max_turns": 20}),
    "game:Wordle-v0": (
        f"{_GAMES}.wordle:WordleEnv",
        {"word_length": 5, "only_real_words": True, "max_turns": 15},
    ),
}

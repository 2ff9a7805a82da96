from __future__ import annotations

import re
from math import isqrt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.envs.games.sudoku import Sudoku
from palestra.errors import BadValue
from palestra.types import Step

Grid = list[list[int]]  # rows of numbers, with 0 for an empty cell


def game(variant: str = "hard", seed: int = 0, **kwargs: Any) -> Sudoku:
    env = palestra.make(f"game:Sudoku-v0-{variant}", **kwargs)
    assert isinstance(env, Sudoku)
    env.reset(seed=seed)
    return env


def play(env: Sudoku, *move: object) -> Step:
    return env.step(f"\\boxed{{{' '.join(map(str, move))}}}")


def parse_board(board: object) -> Grid:
    """Parse the grid from the board."""
    rows = [line.split()[1:] for line in str(board).splitlines() if re.match(r"R\d", line)]
    return [[0 if cell == "." else int(cell) for cell in row if cell != "|"] for row in rows]


def answer(env: Sudoku) -> Grid:
    rows = env.solution().removeprefix("The solution is, row by row: ").rstrip(".").split(" / ")
    return [[int(number) for number in row.split()] for row in rows]


def conflicts(grid: Grid, row: int, column: int, number: int) -> bool:
    side = isqrt(len(grid))
    top, left = row // side * side, column // side * side
    box = [grid[r][c] for r in range(top, top + side) for c in range(left, left + side)]
    return number in grid[row] or number in [line[column] for line in grid] or number in box


def solutions(grid: Grid, limit: int = 2) -> list[Grid]:
    """Return up to `limit` solutions to the grid, by exhaustive search."""
    choices = {
        (r, c): [n for n in range(1, len(grid) + 1) if not conflicts(grid, r, c, n)]
        for r, line in enumerate(grid)
        for c, cell in enumerate(line)
        if not cell
    }
    if not choices:
        return [[line[:] for line in grid]]
    (r, c), numbers = min(choices.items(), key=lambda item: len(item[1]))
    solved_grids: list[Grid] = []
    for number in numbers:
        grid[r][c] = number
        solved_grids += solutions(grid, limit - len(solved_grids))
        grid[r][c] = 0
        if len(solved_grids) >= limit:
            break
    return solved_grids


@pytest.mark.parametrize(
    ("size", "clues", "seeds"),
    [(4, 10, 60), (4, 4, 60), (4, 15, 10), (9, 50, 8), (9, 80, 3), (9, 35, 4), (9, 26, 1), (16, 200, 1)],
)
def test_a_puzzle_has_the_requested_clues_and_one_solution(size: int, clues: int, seeds: int) -> None:
    env = game(scale=size, clues=clues, max_turns=size**2)
    for seed in range(seeds):
        prompt, _ = env.reset(seed=seed)
        grid = parse_board(prompt)
        assert [len(row) for row in grid] == [size] * size
        assert sum(cell > 0 for row in grid for cell in row) == clues
        assert solutions(grid) == [answer(env)]


def test_puzzles_differ_and_use_every_cell() -> None:
    env = game("easy")
    boards = [str(env.reset(seed=seed)[1]["suffix"]) for seed in range(200)]
    assert len(set(boards)) > 190
    emptied = {
        (r, c) for board in boards for r, row in enumerate(parse_board(board)) for c, cell in enumerate(row) if not cell
    }
    assert len(emptied) == 16


@settings(max_examples=40)
@given(st.sampled_from(["easy", "hard"]), st.integers(0, 2**32), st.data())
def test_play_follows_the_rules(variant: str, seed: int, data: st.DataObject) -> None:
    env = game(variant, seed)
    size = env.scale
    grid, solved = parse_board(env.board()), answer(env)
    number = st.integers(0, size + 1)
    for _ in range(data.draw(st.integers(1, 14))):
        row, column, digit = data.draw(st.tuples(number, number, number))
        step = play(env, row, column, digit)
        inside = all(1 <= n <= size for n in (row, column, digit))
        invalid = not inside or grid[row - 1][column - 1] > 0 or conflicts(grid, row - 1, column - 1, digit)
        if not invalid and solved[row - 1][column - 1] == digit:
            grid[row - 1][column - 1] = digit
        assert step.info.get("invalid") == ("rule" if invalid else None)
        assert parse_board(step.observation) == grid
        assert step.terminated == (grid == solved)
        assert step.reward == (1.0 if grid == solved else 0.0)
        if step.terminated:
            return


def test_feedback() -> None:
    env = game("easy", seed=1)
    grid, solved = parse_board(env.board()), answer(env)
    kinds = set()
    for row, line in enumerate(grid):
        for column, cell in enumerate(line):
            for number in range(1, 5):
                step = play(env.fork(), row + 1, column + 1, number)
                text = str(step.observation).splitlines()[0]
                if cell:
                    expected = f"already filled with {cell}"
                elif number == solved[row][column]:
                    expected = "is correct"
                elif conflicts(grid, row, column, number):
                    expected = "in the same"
                else:
                    expected = "not the right number"
                assert expected in text
                kinds.add(expected.split()[0])
    assert kinds == {"already", "is", "in", "not"}


@pytest.mark.parametrize("text", ["{} {} {}", "{},{},{}", "({}, {}, {})", "[{} {} {}]", " {}  {}\t{}\n", "+{} 0{} {}"])
def test_lenient_reading(text: str) -> None:
    env = game()
    row, column = next(
        (r, c) for r, line in enumerate(parse_board(env.board())) for c, cell in enumerate(line) if not cell
    )
    number = answer(env)[row][column]
    play(env, text.format(row + 1, column + 1, number))
    assert parse_board(env.board())[row][column] == number


@pytest.mark.parametrize(
    "text", ["", "1 2", "1 2 3 4", "R1 C2 3", "a b c", "1.0 2 3", "\u0661 \u0662 \u0663", "1 2 " + "9" * 100, "1-2-3"]
)
def test_unreadable(text: str) -> None:
    step = play(game(), text)
    assert (step.terminated, step.reward, step.info["invalid"], step.info["success"]) == (True, -0.1, "format", False)


@pytest.mark.parametrize(
    ("variant", "kwargs", "seeds"),
    [
        ("easy", {}, 100),
        ("hard", {}, 40),
        ("random", {}, 30),
        ("hard", {"clues": 25, "max_turns": 56}, 4),
        ("easy", {"clues": 4, "max_turns": 12}, 30),
    ],
)
def test_the_expert_makes_no_mistakes(variant: str, kwargs: dict[str, int], seeds: int) -> None:
    env = game(variant, **kwargs)
    for seed in range(seeds):
        env.reset(seed=seed)
        for _ in range(env.scale**2 - env.clues):
            step = env.step(env.expert_action())
        assert step.terminated
        assert step.info["success"]


@given(st.integers(0, 2**32), st.integers(0, 9))
def test_the_expert_sees_only_the_grid(seed: int, turns: int) -> None:
    env = game("easy", seed)
    for _ in range(turns):
        if env.step(env.sample_random_action()).terminated:
            return
    blind = env.fork()
    blind.answer = ()
    assert blind.expert_action() == env.expert_action()


def test_the_random_player_fills_empty_cells() -> None:
    env = game("easy", max_turns=1000)
    while not (step := env.step(env.sample_random_action())).terminated:
        assert "filled" not in str(step.observation)
    assert step.info["success"]


def test_partial_credit_rewards_every_cell() -> None:
    env = game("easy", partial_credit=True)
    assert [env.step(env.expert_action()).reward for _ in range(6)] == pytest.approx([1 / 6] * 6)


def test_levels_are_drawn() -> None:
    env = palestra.make("game:Sudoku-v0-random")
    assert {env.reset(seed=seed)[1]["max_turns"] for seed in range(20)} == {15, 50}


@pytest.mark.parametrize(
    "kwargs",
    [
        {"scale": 5},
        {"scale": 25},
        {"clues": 23},
        {"clues": 81},
        {"max_turns": 30},
        {"scale": 4, "clues": 3},
        {"scale": 16},
        {"clues": None, "max_turns": 17},
    ],
)
def test_bad_values(kwargs: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        palestra.make("game:Sudoku-v0-hard", **kwargs)


def test_a_fork_is_independent() -> None:
    env = game()
    board = env.board()
    fork = env.fork()
    fork.step(fork.expert_action())
    assert env.board() == board != fork.board()
    env.step(env.expert_action())
    assert env.board() == fork.board()


def test_the_board_is_aligned() -> None:
    for size, clues in ((4, 10), (9, 50), (16, 200)):
        board = game(scale=size, clues=clues, max_turns=size**2).board()
        lines = board.splitlines()
        assert len({len(line) for line in lines}) == 1
        assert lines[0].split() == [f"C{i + 1}" for i in range(size)]
        bars = {i for line in lines if line[0] == "R" for i, char in enumerate(line) if char == "|"}
        assert bars == {i for line in lines for i, char in enumerate(line) if char == "+"}
        assert len(bars) == isqrt(size) - 1

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import palestra
from palestra.envs.games import minesweeper_solver
from palestra.envs.games.minesweeper import MINE, Minesweeper
from palestra.envs.games.minesweeper_solver import best_cell, neighbours
from palestra.errors import BadValue
from palestra.types import Step


def game(variant: str = "hard", seed: int = 0, **kwargs: Any) -> Minesweeper:
    env = palestra.make(f"game:Minesweeper-v0-{variant}", **kwargs)
    assert isinstance(env, Minesweeper)
    env.reset(seed=seed)
    return env


def play(env: Minesweeper, *move: object) -> Step:
    return env.step(f"\\boxed{{{' '.join(map(str, move))}}}")


def reveal(env: Minesweeper, cell: int) -> Step:
    return play(env, "reveal", cell // env.cols, cell % env.cols)


def parse_board(board: object) -> list[str]:
    """Parse the cells from the board."""
    return [cell for line in str(board).splitlines()[1:] for cell in line.split()[1:]]


def mines(env: Minesweeper) -> set[int]:
    return {cell for cell, number in enumerate(env.numbers) if number == MINE}


sizes = st.tuples(st.integers(2, 9), st.integers(2, 9))
seeds = st.integers(0, 2**48)


@given(size=sizes, share=st.floats(0, 1), first=st.integers(0, 80), seed=seeds)
def test_the_first_cell_and_if_possible_its_neighbours_are_free(
    size: tuple[int, int], share: float, first: int, seed: int
) -> None:
    rows, cols = size
    count = 1 + int(share * (rows * cols - 2))
    env = game(seed=seed, rows=rows, cols=cols, num_mines=count)
    first %= rows * cols
    reveal(env, first)
    beside = neighbours(rows, cols)[first]
    laid = mines(env)
    assert len(laid) == count
    assert first not in laid
    assert len(laid & set(beside)) == max(0, count - (rows * cols - 1 - len(beside)))


@given(seed=seeds, first=st.integers(0, 63))
def test_numbers_count_the_mines_around(seed: int, first: int) -> None:
    env = game(seed=seed)
    reveal(env, first)
    laid = {divmod(cell, 8) for cell in mines(env)}
    for cell, number in enumerate(env.numbers):
        row, col = divmod(cell, 8)
        adjacent = {(row + y, col + x) for y in (-1, 0, 1) for x in (-1, 0, 1)} - {(row, col)}
        assert number == (MINE if (row, col) in laid else len(adjacent & laid))


@given(seed=seeds, moves=st.lists(st.tuples(st.sampled_from(["reveal", "flag"]), st.integers(0, 63)), max_size=40))
def test_the_board_shows_only_revealed_cells(seed: int, moves: list[tuple[str, int]]) -> None:
    env = game(seed=seed)
    for verb, cell in moves:
        before = parse_board(env.board())
        step = play(env, verb, cell // 8, cell % 8)
        after = parse_board(env.board())
        changed = {i for i in range(64) if before[i] != after[i]}
        if step.info.get("invalid"):
            assert not changed
            assert before[cell] != "."
        elif verb == "flag":
            assert changed == {cell}
            assert {before[cell], after[cell]} == {".", "F"}
        else:
            assert all(before[i] == "." and after[i] == "012345678*"[env.numbers[i]] for i in changed)
            assert cell in changed
            # All neighbors of a 0 are revealed unless they are flagged.
            for zero in (i for i in changed if after[i] == "0"):
                assert all(after[cell] != "." for cell in neighbours(8, 8)[zero])
            assert len(changed) == 1 or after[cell] == "0"
        if step.terminated:
            hit = after[cell] == "*"
            opened = sum(seen.isdigit() for seen in after)
            assert step.info["success"] == (opened == 52)
            assert step.info["ending"] == ("lost" if hit else "solved")
            return


def test_revealing_the_last_free_cell_wins_without_flags() -> None:
    env = game("easy", seed=3)
    step = play(env, "reveal", 2, 2)
    free = [cell for cell in range(25) if cell not in mines(env)]
    for cell in free:
        if parse_board(env.board())[cell] == ".":
            assert not step.terminated
            step = reveal(env, cell)
    assert (step.terminated, step.reward, step.info["success"]) == (True, 1.0, True)


def test_a_mine_loses_and_the_mines_are_shown() -> None:
    env = game("easy", seed=3)
    play(env, "reveal", 2, 2)
    cell = min(mines(env))
    step = reveal(env, cell)
    assert (step.terminated, step.reward, step.info["ending"]) == (True, 0.0, "lost")
    for mine in mines(env):
        assert f"({mine // 5}, {mine % 5})" in str(step.observation)


def test_flags_protect_a_cell_and_can_be_removed() -> None:
    env = game(seed=1)
    assert not play(env, "flag", 3, 3).info.get("invalid")
    step = play(env, "reveal", 3, 3)  # a rejected first reveal must not place the mines
    assert step.info["invalid"] == "rule"
    assert not env.numbers
    play(env, "reveal", 2, 2)
    assert parse_board(env.board())[27] == "F"  # adjacent to a 0, but not revealed
    assert not play(env, "flag", 3, 3).info.get("invalid")
    assert parse_board(env.board())[27] == "."
    assert not play(env, "reveal", 3, 3).info.get("invalid")
    assert play(env, "flag", 3, 3).info["invalid"] == "rule"
    assert play(env, "reveal", 3, 3).info["invalid"] == "rule"


@pytest.mark.parametrize(
    "text",
    ["reveal 4 5", "REVEAL 4 5", " Reveal  4,5 ", "reveal (4, 5)", "reveal: [4, 5]", "(reveal 4 5)", "reveal 4 5."],
)
def test_lenient_move_formats(text: str) -> None:
    assert game().parse(text) == ("reveal", 4, 5)


@pytest.mark.parametrize("text", ["", "reveal", "reveal 4", "4 5", "reveal 4 5 6", "reveal a b", "reveal 1234567890 1"])
def test_an_unreadable_move_ends_the_game(text: str) -> None:
    step = play(game(), text)
    assert (step.terminated, step.reward, step.info["ending"]) == (True, -0.1, "format")


@pytest.mark.parametrize("text", ["reveal 8 0", "reveal 0 8", "reveal -1 0", "flag 99 99", "dig 1 1"])
def test_rule_violations_only_cost_a_turn(text: str) -> None:
    env = game()
    step = play(env, text)
    assert (step.terminated, step.info["invalid"], env.turn) == (False, "rule", 1)
    assert set(parse_board(env.board())) == {"."}


def test_rows_and_columns_are_labelled() -> None:
    env = game(rows=3, cols=12, num_mines=3)
    play(env, "flag", 1, 10)
    lines = env.board().splitlines()
    assert lines[0].split() == [str(col) for col in range(12)]
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2"]
    assert lines[2].index("F") == lines[0].index("10") + 1


def test_random_levels() -> None:
    env = game("random")
    drawn = set()
    for seed in range(40):
        _, info = env.reset(seed=seed)
        drawn.add((env.rows, env.cols, env.num_mines, info["max_turns"]))
    assert drawn == {(n, n, n * n // 5, n * n) for n in (5, 6, 7, 8)}


@pytest.mark.parametrize(
    "kwargs", [{"rows": 1}, {"cols": 31}, {"num_mines": 0}, {"num_mines": 64}, {"rows": 9.0}, {"num_mines": "3"}]
)
def test_impossible_boards_are_rejected(kwargs: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        game(**kwargs)


def test_partial_credit_sums_to_one() -> None:
    env = game("easy", partial_credit=True)
    wins = 0
    for seed in range(20):
        env.reset(seed=seed)
        rewards = []
        while env.ending is None:
            rewards.append(env.step(env.expert_action()).reward)
        assert min(rewards) >= 0
        if env.ending == "solved":
            wins += 1
            assert sum(rewards) == pytest.approx(1.0)
        else:
            assert sum(rewards) == pytest.approx(env.progress())
    assert wins


# Expert, compared with an enumeration of all consistent boards


def consistent_boards(env: Minesweeper) -> list[set[int]]:
    seen = parse_board(env.board())
    hidden = [cell for cell, look in enumerate(seen) if not look.isdigit()]
    around = neighbours(env.rows, env.cols)
    numbers = [(set(around[cell]), int(look)) for cell, look in enumerate(seen) if look.isdigit()]
    boards = [set(chosen) for chosen in combinations(hidden, env.num_mines)]
    return [board for board in boards if all(len(board & cells) == number for cells, number in numbers)]


def partly_revealed(seed: int, reveals: list[int], count: int = 4) -> Minesweeper:
    """Return a game on a 4 x 4 board with some free cells revealed."""
    env = game(seed=seed, rows=4, cols=4, num_mines=count)
    for cell in reveals:
        if env.ending is None and cell not in mines(env) and parse_board(env.board())[cell] == ".":
            reveal(env, cell)
    return env


some_reveals = st.lists(st.integers(0, 15), min_size=1, max_size=6)


@given(seed=seeds, reveals=some_reveals)
def test_the_expert_counts_boards_exactly(seed: int, reveals: list[int]) -> None:
    env = partly_revealed(seed, reveals)
    if env.ending is not None:
        return
    boards = consistent_boards(env)
    seen = parse_board(env.board())
    unknown = sum(1 << cell for cell, look in enumerate(seen) if look == ".")
    clues = [
        (sum(1 << other for other in neighbours(4, 4)[cell] if seen[other] == "."), int(look))
        for cell, look in enumerate(seen)
        if look.isdigit()
    ]
    odds = minesweeper_solver._Odds(unknown, clues, 4, 17)
    assert odds.total == len(boards)
    assert odds.risk == {cell: sum(cell in board for board in boards) for cell in range(16) if seen[cell] == "."}
    assert sorted(odds.boards()) == sorted(sum(1 << cell for cell in board) for board in boards)


@given(seed=seeds, reveals=some_reveals)
def test_the_expert_reveals_a_certainly_free_cell_if_there_is_one(seed: int, reveals: list[int]) -> None:
    env = partly_revealed(seed, reveals)
    if env.ending is not None:
        return
    boards = consistent_boards(env)
    hidden = [cell for cell, look in enumerate(parse_board(env.board())) if look == "."]
    choice = best_cell(env.view, 4, 4, 4)
    assert choice in hidden
    if any(all(cell not in board for board in boards) for cell in hidden):
        assert all(choice not in board for board in boards)


@settings(max_examples=30)
@given(seed=seeds, reveals=some_reveals, count=st.integers(3, 6))
@example(seed=1916, reveals=[7, 11], count=6)  # in this example, the cell with the lowest risk is not the best choice
def test_with_few_boards_left_the_expert_maximizes_wins(seed: int, reveals: list[int], count: int) -> None:
    env = partly_revealed(seed, reveals, count)
    boards = consistent_boards(env) if env.ending is None else []
    if not 2 <= len(boards) <= 20:
        return
    hidden = [cell for cell, look in enumerate(parse_board(env.board())) if look == "."]
    around = [set(nears) for nears in neighbours(4, 4)]

    def wins(fitting: list[set[int]], cells: list[int], only: int | None = None) -> int:
        """Return the number of boards that optimal play wins, by exhaustive search; `only` fixes the first move."""
        best = 0
        for cell in cells if only is None else [only]:
            alive = [board for board in fitting if cell not in board]
            rest = [other for other in cells if other != cell]
            total = 0
            for number in range(9):
                part = [board for board in alive if len(board & around[cell]) == number]
                if part:
                    total += len(part) if len(rest) == count or len(part) == 1 else wins(part, rest)
            best = max(best, total)
            if len(alive) == len(fitting):
                break  # the cell is safe on every board, so revealing it first is optimal
        return best

    assert wins(boards, hidden, best_cell(env.view, 4, 4, count)) == wins(boards, hidden)


def test_the_expert_removes_flags_from_cells_it_reveals() -> None:
    env = game("easy", seed=5)
    env.max_turns = 200
    for cell in range(20):
        play(env, "flag", cell // 5, cell % 5)
    while env.ending is None:
        step = env.step(env.expert_action())
        assert "invalid" not in step.info
    assert env.ending in ("solved", "lost")


@pytest.mark.parametrize(("variant", "least"), [("easy", 0.7), ("hard", 0.7), ("random", 0.75)])
def test_the_expert_wins_most_games(variant: str, least: float) -> None:
    env = game(variant)
    won = 0
    for seed in range(150):
        env.reset(seed=seed)
        while env.ending is None:
            assert "invalid" not in env.step(env.expert_action()).info
        won += env.ending == "solved"
    assert won >= least * 150


def test_the_expert_handles_boards_too_large_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minesweeper_solver, "MAX_STATES", 3)
    env = game(rows=10, cols=10, num_mines=20, max_turns=100)
    for seed in range(10):
        env.reset(seed=seed)
        while env.ending is None:
            assert "invalid" not in env.step(env.expert_action()).info


def test_forks_are_independent() -> None:
    env = game(seed=4)
    fork = env.fork()  # the mines have not been placed yet
    reveal(env, 0)
    reveal(fork, 0)
    assert env.board() == fork.board()
    reveal(fork, min(mines(fork)))
    assert env.ending is None
    assert "*" not in env.board()

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.envs.games.game_2048 import DIRECTIONS, Game2048
from palestra.envs.games.game_2048_solver import DEAD, expert, slid
from palestra.errors import BadValue
from palestra.types import Step


def game(variant: str = "hard", seed: int = 0, **kwargs: Any) -> Game2048:
    env = palestra.make(f"game:Game2048-v0-{variant}", **kwargs)
    assert isinstance(env, Game2048)
    env.reset(seed=seed)
    return env


def play(env: Game2048, move: str) -> Step:
    return env.step(f"\\boxed{{{move}}}")


def parse_board(board: object) -> list[list[int]]:
    """Parse the tiles from the board, with 0 for an empty cell."""
    return [[0 if cell == "." else int(cell) for cell in line.split()] for line in str(board).splitlines()]


def put(env: Game2048, *rows: str) -> None:
    """Replace a game's board."""
    env.cells = [0 if cell == "." else int(cell).bit_length() - 1 for row in rows for cell in row.split()]
    env.initial_rank = max(env.cells)


ranks = st.integers(0, 5)
boards = st.lists(ranks, min_size=16, max_size=16)


def reference_slide(line: list[int]) -> list[int]:
    """Reference implementation, which merges the pairs in every run of equal tiles from the front."""
    merged: list[int] = []
    for rank, run in groupby([rank for rank in line if rank]):
        pairs, single = divmod(len(list(run)), 2)
        merged += [rank + 1] * pairs + [rank] * single
    return merged + [0] * (len(line) - len(merged))


@given(st.lists(ranks, min_size=3, max_size=8))
def test_lines_slide_like_the_reference(line: list[int]) -> None:
    assert list(slid(tuple(line))) == reference_slide(line)


def reference_move(cells: list[int], move: str) -> list[int]:
    lines = [cells[i : i + 4] if move in ("left", "right") else cells[i // 4 :: 4] for i in range(0, 16, 4)]
    if move in ("right", "down"):
        lines = [reference_slide(line[::-1])[::-1] for line in lines]
    else:
        lines = [reference_slide(line) for line in lines]
    if move in ("up", "down"):
        lines = [list(row) for row in zip(*lines, strict=True)]
    return [rank for line in lines for rank in line]


@given(cells=boards, move=st.sampled_from(DIRECTIONS), seed=st.integers(0, 2**32))
def test_a_move_slides_every_line_and_adds_one_tile(cells: list[int], move: str, seed: int) -> None:
    env = game(seed=seed, target_tile=2048, max_turns=1000)
    env.cells = cells[:]
    expected = reference_move(cells, move)
    step = play(env, move)
    if expected == cells:
        assert step.info["invalid"] == "rule"
        assert env.cells == cells
        return
    assert "invalid" not in step.info
    changed = [(old, new) for old, new in zip(expected, env.cells, strict=True) if old != new]
    assert changed in ([(0, 1)], [(0, 2)])
    assert parse_board(env.board()) == [
        [2**rank if rank else 0 for rank in env.cells[i : i + 4]] for i in range(0, 16, 4)
    ]
    movable = any(reference_move(env.cells, way) != env.cells for way in DIRECTIONS)
    assert step.terminated == (not movable)


def test_a_game_starts_with_two_tiles_of_which_90_percent_are_twos() -> None:
    env = game()
    fours = 0
    for seed in range(1000):
        prompt, info = env.reset(seed=seed)
        tiles = sorted(tile for row in parse_board(info["suffix"]) for tile in row if tile)
        assert tiles in ([2, 2], [2, 4], [4, 4])
        assert str(info["suffix"]) in str(prompt)
        fours += tiles.count(4)
    assert 150 < fours < 250


def test_reaching_the_target_wins() -> None:
    env = game("easy")
    put(env, "32 . . 32", "2 4 8 16", "2 . . .", ". . . .")
    step = play(env, "left")
    assert (step.terminated, step.reward, step.info["success"]) == (True, 1.0, True)
    assert parse_board(step.info["suffix"])[0][0] == 64


def test_a_board_without_a_move_is_lost() -> None:
    env = game(seed=2)
    put(env, "8 16 8 16", "16 8 16 8", "8 16 8 16", "8 64 32 .")
    step = play(env, "right")  # leaves one empty cell, where a new tile appears that cannot merge
    assert (step.terminated, step.reward, step.info["ending"]) == (True, 0.0, "lost")
    assert "largest tile was 64" in str(step.observation)


def test_a_full_board_that_can_merge_continues() -> None:
    env = game(seed=2)
    put(env, "8 16 8 16", "8 32 4 32", "16 4 8 64", "8 64 32 .")
    step = play(env, "right")
    assert 0 not in env.cells
    assert not step.terminated


@pytest.mark.parametrize("text", ["left", "LEFT", " Left ", "(left)", "[left]", "'left'", '"left".'])
def test_lenient_move_formats(text: str) -> None:
    assert game().parse(text) == "left"


@pytest.mark.parametrize("text", ["", "l", "left right", "west", "leftt", "0"])
def test_an_unreadable_move_ends_the_game(text: str) -> None:
    step = play(game(), text)
    assert (step.terminated, step.reward, step.info["ending"]) == (True, -0.1, "format")


@pytest.mark.parametrize(
    "kwargs",
    [
        {"target_tile": 100},
        {"target_tile": 4},
        {"target_tile": 0},
        {"target_tile": -8},
        {"target_tile": 262144, "max_turns": 10**6},
        {"target_tile": 64.0},
        {"target_tile": "64"},
        {"board_size": 2},
        {"board_size": 9},
        {"board_size": 3, "target_tile": 2048, "max_turns": 5000},
        {"target_tile": 512, "max_turns": 50},  # GEM's turn limit for this target is too low to reach it
        {"target_tile": 2048, "max_turns": 100},
        {"target_tile": 128, "max_turns": None},
    ],
)
def test_unreachable_targets_are_rejected(kwargs: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        game(**kwargs)


@settings(max_examples=40)
@given(turns=st.integers(1, 600), moves=st.randoms(use_true_random=False))
def test_no_game_exceeds_the_bound_on_targets(turns: int, moves: Any) -> None:
    env = game("extreme-hard", seed=turns)
    while env.ending is None and env.turn < min(turns, 60):
        play(env, moves.choice(DIRECTIONS))
        total = sum(2**rank for rank in env.cells if rank)
        assert total <= 8 + 4 * env.turn


def test_random_levels() -> None:
    env = game("random")
    drawn = set()
    for seed in range(40):
        _, info = env.reset(seed=seed)
        drawn.add((env.target_tile, info["max_turns"]))
    assert drawn == {(16, 20), (32, 30), (64, 50)}
    assert game("random", target_tile=32).max_turns == 30


def test_partial_credit_follows_the_largest_tile() -> None:
    env = game("easy", partial_credit=True)
    put(env, "4 4 . .", ". . . .", ". . . .", "2 . . .")
    assert env.progress() == 0.0
    assert play(env, "left").reward == pytest.approx(1 / 4)  # 8 is the first of four doublings from 4 to 64
    rewards = [1 / 4]
    while env.ending is None:
        rewards.append(env.step(env.expert_action()).reward)
    assert env.ending == "solved"
    assert sum(rewards) == pytest.approx(1.0)


# Expert


@settings(max_examples=40)
@given(cells=boards, size=st.integers(3, 4), goal=st.integers(6, 11))
def test_the_expert_makes_a_possible_move(cells: list[int], size: int, goal: int) -> None:
    cells = cells[: size * size]
    env = game(board_size=size, target_tile=2**goal if goal <= size**2 + 1 else 64, max_turns=2000)
    env.cells = cells
    move = env.expert_move()
    assert move in DIRECTIONS
    assert move in env._movable() or not env._movable()


@settings(max_examples=40)
@given(cells=boards, goal=st.integers(6, 8))
def test_the_expert_takes_an_immediate_win(cells: list[int], goal: int) -> None:
    env = game(target_tile=2**goal, max_turns=100)
    cells[3], cells[7] = goal - 1, goal - 1
    env.cells = cells[:]
    assert play(env, env.expert_move()).info["success"]


@given(st.lists(st.integers(0, 10), min_size=4, max_size=4))
def test_the_value_of_a_line_does_not_depend_on_its_direction(line: list[int]) -> None:
    value = expert(4, 11).lines._value
    assert value(tuple(line)) == value(tuple(line[::-1]))
    assert value(tuple(sorted(line))) >= value(tuple(line))  # a sorted line has the highest value


def packed(cells: list[int]) -> tuple[int, int]:
    columns = [cells[4 * j + i] for i in range(4) for j in range(4)]
    one, other = (sum(rank << 5 * i for i, rank in enumerate(board)) for board in (cells, columns))
    return one, other


@settings(max_examples=40)
@given(cells=boards)
def test_the_expert_matches_a_reference_expectimax(cells: list[int]) -> None:
    player = expert(4, 11)

    def value(board: list[int]) -> int:
        lines = [board[i : i + 4] for i in range(0, 16, 4)] + [board[i::4] for i in range(4)]
        return sum(player.lines._value(tuple(line)) for line in lines)

    def best(board: list[int], layers: int) -> float:
        after = [reference_move(board, way) for way in DIRECTIONS]
        return max((average(moved, layers) for moved in after if moved != board), default=DEAD)

    def average(board: list[int], layers: int) -> float:
        if not layers:
            return value(board)
        empty = [i for i, rank in enumerate(board) if not rank]
        return sum(best([*board[:i], 1, *board[i + 1 :]], layers - 1) for i in empty) / len(empty)

    for layers in (0, 1):
        assert player._best(*packed(cells), layers, {}) == pytest.approx(best(cells, layers))


@pytest.mark.parametrize(("variant", "games", "least"), [("easy", 10, 10), ("random", 10, 10), ("hard", 1, 1)])
def test_the_expert_wins(variant: str, games: int, least: int) -> None:
    env = game(variant)
    won = 0
    for seed in range(games):
        env.reset(seed=seed)
        while env.ending is None:
            assert "invalid" not in env.step(env.expert_action()).info
        won += env.ending == "solved"
    assert won >= least


@pytest.mark.parametrize("size", [3, 5, 8])
def test_the_expert_plays_on_boards_of_other_sizes(size: int) -> None:
    env = game(board_size=size, target_tile=64, max_turns=100)
    while env.ending is None:
        env.step(env.expert_action())
    assert env.ending == "solved"


def test_the_random_player_makes_valid_moves() -> None:
    env = game(seed=9)
    while env.ending is None:
        assert "invalid" not in env.step(env.sample_random_action()).info


def test_forks_are_independent() -> None:
    env = game(seed=4)
    fork = env.fork()
    before = env.board()
    for _ in range(20):
        fork.step(fork.expert_action())
    assert env.board() == before
    for _ in range(20):
        env.step(env.expert_action())
    assert env.board() == fork.board()

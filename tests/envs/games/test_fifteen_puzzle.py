from __future__ import annotations

from collections import deque
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.envs.games.fifteen_puzzle import FifteenPuzzle
from palestra.errors import BadValue
from palestra.types import Step

BACK = {"up": "down", "down": "up", "left": "right", "right": "left"}
FROM = {"up": (1, 0), "down": (-1, 0), "left": (0, 1), "right": (0, -1)}  # position of the tile relative to the gap
moves = st.sampled_from(sorted(BACK))
Tiles = tuple[int, ...]


def game(variant: str = "hard", seed: int = 0, **kwargs: Any) -> FifteenPuzzle:
    env = palestra.make(f"game:FifteenPuzzle-v0-{variant}", **kwargs)
    assert isinstance(env, FifteenPuzzle)
    env.reset(seed=seed)
    return env


def play(env: FifteenPuzzle, move: str) -> Step:
    return env.step(f"\\boxed{{{move}}}")


def tiles_of(env: FifteenPuzzle) -> Tiles:
    """Parse the tiles from the board, with 0 for the gap."""
    rows = [line.split() for line in env.board().splitlines()]
    assert {len(row) for row in rows} == {len(rows)}
    return tuple(int(word.replace("__", "0")) for row in rows for word in row)


def slid(tiles: Tiles, move: str) -> Tiles | None:
    """Reference implementation of a move, based on coordinates."""
    size = int(len(tiles) ** 0.5)
    row, col = divmod(tiles.index(0), size)
    row, col = row + FROM[move][0], col + FROM[move][1]
    if not (0 <= row < size and 0 <= col < size):
        return None
    tile = tiles[row * size + col]
    return tuple({0: tile, tile: 0}.get(other, other) for other in tiles)


def solve(env: FifteenPuzzle) -> int:
    """Play with the expert to the end of the game, and return the number of turns used."""
    while env.ending is None:
        step = env.step(env.expert_action())
        assert "invalid" not in step.info
    return env.turn


@cache
def distances(size: int) -> dict[Tiles, int]:
    """Return {board: moves to the solution} for every board at most 20 moves away."""
    order = (*range(1, size * size), 0)
    distance = {order: 0}
    queue = deque([order])
    while queue and distance[queue[0]] < 20:
        tiles = queue.popleft()
        for move in BACK:
            after = slid(tiles, move)
            if after is not None and after not in distance:
                distance[after] = distance[tiles] + 1
                queue.append(after)
    return distance


def test_moves_name_the_direction_in_which_a_tile_slides() -> None:
    env = game(num_rows=3, max_turns=20)
    for move, after in [
        ("up", " 1  2  3\n 4  8  5\n 6 __  7"),
        ("down", " 1 __  3\n 4  2  5\n 6  8  7"),
        ("left", " 1  2  3\n 4  5 __\n 6  8  7"),
        ("right", " 1  2  3\n__  4  5\n 6  8  7"),
    ]:
        env.grid = " 1  2  3\n 4 __  5\n 6  8  7"
        step = play(env, move)
        assert env.board() == after
        assert "invalid" not in step.info


@pytest.mark.parametrize(
    ("move", "grid"),
    [("up", " 2  1\n 3 __"), ("left", " 2  1\n 3 __"), ("down", "__  1\n 3  2"), ("right", "__  1\n 3  2")],
)
def test_a_move_without_a_tile_costs_a_turn_and_changes_nothing(move: str, grid: str) -> None:
    env = game("easy")
    env.grid = grid
    step = play(env, move)
    assert step.info["invalid"] == "rule"
    assert (env.board(), env.turn, step.reward, step.terminated) == (grid, 1, 0.0, False)


def test_the_solved_board_wins() -> None:
    env = game("easy")
    env.grid = " 1  2\n__  3"
    step = play(env, "left")
    assert (step.reward, step.terminated, step.info["success"]) == (1.0, True, True)


@pytest.mark.parametrize("text", ["left", "LEFT", " Left\n", "`left`", "left.", "(left)"])
def test_lenient_move_formats(text: str) -> None:
    assert game().parse(text) == "left"


@pytest.mark.parametrize("text", ["", "l", "7", "left left", "左", "\0left"])
def test_other_words_are_rejected(text: str) -> None:
    step = play(game(), text)
    assert (step.reward, step.info["ending"]) == (-0.1, "format")


@pytest.mark.parametrize(
    ("num_rows", "max_turns", "seeds"), [(2, 10, 60), (3, 20, 80), (4, 50, 40), (5, 50, 10), (10, 50, 4), (4, 7, 20)]
)
def test_every_board_is_solved_within_the_budget(num_rows: int, max_turns: int, seeds: int) -> None:
    starts = set()
    for seed in range(seeds):
        env = game(seed=seed, num_rows=num_rows, max_turns=max_turns)
        assert sorted(tiles_of(env)) == list(range(num_rows**2))
        assert tiles_of(env) != (*range(1, num_rows**2), 0)
        starts.add(env.grid)
        assert solve(env) <= max_turns
        assert env.ending == "solved", seed
    assert len(starts) == 9 if num_rows == 2 else len(starts) >= 0.9 * seeds


@pytest.mark.parametrize(("num_rows", "seeds"), [(2, 40), (3, 40)])
def test_the_expert_plays_a_shortest_plan(num_rows: int, seeds: int) -> None:
    for seed in range(seeds):
        env = game(seed=seed, num_rows=num_rows, max_turns=20)
        for _ in range(seed % 4):  # start some games after random moves
            if env.ending is None:
                env.step(env.sample_random_action())
        shortest = env.turn + distances(num_rows).get(tiles_of(env), 20)
        assert solve(env) == min(shortest, 20)


def test_large_boards_are_hard_but_not_too_hard() -> None:
    lengths = [solve(game(seed=seed)) for seed in range(40)]
    assert 18 <= min(lengths) <= max(lengths) <= 36
    assert sorted(lengths)[20] >= 24


@given(seed=st.integers(0, 2**32), played=st.lists(moves, max_size=8))
@settings(max_examples=25)
def test_the_experts_move_depends_on_the_board_alone(seed: int, played: list[str]) -> None:
    used = game(seed=seed, num_rows=3, max_turns=60)
    for move in played:
        if used.ending is None:
            used.expert_action()
            play(used, move)
    while used.ending is None:
        fresh = game(num_rows=3, max_turns=60)
        fresh.grid = used.grid
        assert fresh.expert_action() == used.expert_action()
        used.step(used.expert_action())


@given(seed=st.integers(0, 2**32), variant=st.sampled_from(["easy", "hard", "random"]), played=st.lists(moves))
@settings(max_examples=60)
def test_play_follows_the_rules(seed: int, variant: str, played: list[str]) -> None:
    env = game(variant, seed=seed)
    tiles = tiles_of(env)
    order = (*range(1, len(tiles)), 0)
    for move in played:
        if env.ending is not None:
            break
        step = play(env, move)
        after = slid(tiles, move)
        tiles = after or tiles
        assert tiles_of(env) == tiles
        if env.ending is None:
            assert step.info.get("invalid") == (None if after else "rule")
        assert (env.ending == "solved") == (tiles == order)
        if after and env.ending is None:
            fork = env.fork()
            play(fork, BACK[move])
            assert slid(tiles_of(fork), move) == tiles_of(env) == tiles


def test_the_expert_handles_boards_beyond_its_search_limit() -> None:
    env = game()
    env.grid = "14 15 13 12\n11 10  9  8\n 7  6  5  4\n 3  2  1 __"
    for _ in range(10):
        assert "invalid" not in env.step(env.expert_action()).info


def test_the_random_player_makes_possible_moves() -> None:
    env = game()
    while env.ending is None:
        assert "invalid" not in env.step(env.sample_random_action()).info


def test_partial_credit_sums_to_one() -> None:
    env = game("random", seed=3, partial_credit=True)
    total = 0.0
    while env.ending is None:
        step = env.step(env.expert_action())
        assert step.reward >= 0.0
        total += step.reward
    assert total == pytest.approx(1.0)


def test_random_draws_every_level() -> None:
    env = game("random")
    drawn = set()
    for seed in range(30):
        env.reset(seed=seed)
        drawn.add((env.num_rows, env.max_turns))
    assert drawn == {(2, 10), (3, 20), (4, 50)}


def test_the_prompt_explains_the_moves() -> None:
    prompt, info = game(num_rows=4, max_turns=50).reset(seed=0)
    assert isinstance(prompt, str)
    assert "up: the tile below the gap moves up" in prompt
    assert "tiles 1 to 15" in prompt
    assert "50 turns" in prompt
    assert prompt.endswith(info["suffix"])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_rows": 1}, "from 2 to 10"),
        ({"num_rows": 11}, "from 2 to 10"),
        ({"num_rows": 3.0}, "from 2 to 10"),
        ({"max_turns": 0}, "max_turns"),
        ({"num_rows": 5, "max_turns": None}, "num_rows"),
    ],
)
def test_bad_values_are_rejected(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        palestra.make("game:FifteenPuzzle-v0-hard", **kwargs)

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.envs.games.sokoban import Sokoban
from palestra.errors import BadValue
from palestra.types import Step

SHIFTS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
moves = st.sampled_from(sorted(SHIFTS))
Position = tuple[tuple[int, int], frozenset[tuple[int, int]]]  # the player's position, and the boxes' positions


def game(variant: str = "easy", seed: int = 0, **kwargs: Any) -> Sokoban:
    env = palestra.make(f"game:Sokoban-v0-{variant}", **kwargs)
    assert isinstance(env, Sokoban)
    env.reset(seed=seed)
    return env


def at(*rows: str, **kwargs: Any) -> Sokoban:
    """Return a game that starts in this room."""
    text = "\n".join(" ".join(row) for row in rows)
    boxes = text.count("X") + text.count("√")
    env = game(dim_room=(len(rows), len(rows[0])), num_boxes=1, max_turns=kwargs.pop("max_turns", 50), **kwargs)
    env.num_boxes = boxes
    env.room = text
    env.player = max(text.find("P"), text.find("S"))
    return env


def play(env: Sokoban, move: str) -> Step:
    return env.step(f"\\boxed{{{move}}}")


def rows_of(env: Sokoban) -> list[str]:
    return [row.replace(" ", "") for row in env.board().splitlines()]


def room_of(env: Sokoban) -> tuple[set[tuple[int, int]], set[tuple[int, int]], Position]:
    """Parse the floor, the goals and the position from the board."""
    cells = {(r, c): symbol for r, row in enumerate(rows_of(env)) for c, symbol in enumerate(row)}
    (player,) = [cell for cell, symbol in cells.items() if symbol in "PS"]
    boxes = frozenset(cell for cell, symbol in cells.items() if symbol in "X√")
    goals = {cell for cell, symbol in cells.items() if symbol in "OS√"}
    return {cell for cell, symbol in cells.items() if symbol != "#"}, goals, (player, boxes)


def moved(floor: set[tuple[int, int]], position: Position, move: str) -> Position | None:
    """Reference implementation of a move, based on coordinates."""
    (row, col), boxes = position
    down, right = SHIFTS[move]
    to, behind = (row + down, col + right), (row + 2 * down, col + 2 * right)
    if to not in floor or (to in boxes and (behind not in floor or behind in boxes)):
        return None
    return to, boxes - {to} | {behind} if to in boxes else boxes


@pytest.mark.parametrize(
    ("before", "move", "after"),
    [
        ("#P__X_O#", "right", "#_P_X_O#"),
        ("#_PX_XO#", "right", "#__PXXO#"),
        ("#PX_XO_#", "right", "#_PXXO_#"),
        ("#XOS_X_#", "left", "#XSO_X_#"),
        ("#XOP_O_#", "left", "#XS__O_#"),
        ("#XOS_X_#", "right", "#XOOPX_#"),
        ("#X_P√__#", "right", "#X__SX_#"),
        ("#XOPX_O#", "right", "#XO_PXO#"),
        ("#X_PXO_#", "right", "#X__P√_#"),
        ("#X_P√O_#", "right", "#X__S√_#"),
        ("#P__X_O#", "left", None),
        ("#O_PXX_#", "right", None),
        ("#X_P√√_#", "right", None),
        ("#OO_XPX#", "right", None),
        ("#XP_XOO#", "left", None),
        ("#X_√P_√#", "up", None),
    ],
)
def test_pushing(before: str, move: str, after: str | None) -> None:
    side = "########"
    for turned in (False, True):
        rows = [side, side, before, side, side]
        if turned:  # transposed
            rows = ["".join(column) for column in zip(*rows, strict=True)]
            move = {"left": "up", "right": "down", "up": "left", "down": "right"}[move]
        env = at(*rows)
        step = play(env, move)
        line = "".join(row[2] for row in rows_of(env)) if turned else rows_of(env)[2]
        assert line == (after or before)
        assert step.info.get("invalid") == (None if after else "rule")
        assert not step.terminated
        assert env.turn == 1


def test_the_game_is_won_when_every_box_is_on_some_goal() -> None:
    env = at("######", "#__√_#", "#PX_O#", "#____#", "######")
    assert not play(env, "right").terminated
    step = play(env, "right")
    assert (step.reward, step.terminated, step.info["success"]) == (1.0, True, True)
    assert rows_of(env)[2] == "#__P√#"


def test_an_unsolvable_position_continues_until_the_turns_are_used_up() -> None:
    env = at("#####", "#X_O#", "#P__#", "#___#", "#####", max_turns=7)
    for turn in range(1, 7):
        step = env.step(env.expert_action())
        assert not step.terminated
        assert "invalid" not in step.info, f"the expert's move in turn {turn} is not possible"
    assert env.step(env.expert_action()).info["ending"] == "out_of_turns"


def test_players_handle_a_position_without_any_move() -> None:
    env = at("######", "#X####", "#PX#O#", "#X##O#", "##__O#", "######")
    step = env.step(env.expert_action())
    assert (step.terminated, step.info["invalid"]) == (False, "rule")
    assert not env.step(env.sample_random_action()).terminated


@pytest.mark.parametrize("text", ["up", "UP", " Up ", "'up'", "up.", "[up]", '"up"\n'])
def test_lenient_move_formats(text: str) -> None:
    assert game().parse(text) == "up"


@pytest.mark.parametrize("text", ["", "north", "u", "up up", "up, down", "上", "\0up", "1"])
def test_other_words_are_rejected(text: str) -> None:
    env = game()
    step = play(env, text)
    assert (step.reward, step.info["ending"], step.info["invalid"]) == (-0.1, "format", "format")


@pytest.mark.parametrize(
    ("kwargs", "seeds"),
    [
        ({"dim_room": (6, 6), "num_boxes": 2, "max_turns": 20}, 120),
        ({"dim_room": (7, 7), "num_boxes": 3, "max_turns": 35}, 60),
        ({"dim_room": (8, 8), "num_boxes": 4, "max_turns": 50}, 25),
        ({"dim_room": (8, 8), "num_boxes": 5, "max_turns": 50}, 15),
        ({"dim_room": (5, 5), "num_boxes": 1, "max_turns": 6}, 30),
        ({"dim_room": (6, 6), "num_boxes": 3, "max_turns": 100}, 15),
        ({"dim_room": (5, 20), "num_boxes": 2, "max_turns": 12}, 10),
        ({"dim_room": (20, 20), "num_boxes": 1, "max_turns": 100}, 5),
    ],
)
def test_every_room_is_valid_and_solved_within_the_budget(kwargs: dict[str, Any], seeds: int) -> None:
    rooms = set()
    for seed in range(seeds):
        env = game(seed=seed, **kwargs)
        rooms.add(env.room)
        floor, goals, (player, boxes) = room_of(env)
        rows, cols = kwargs["dim_room"]
        assert all(0 < r < rows - 1 and 0 < c < cols - 1 for r, c in floor)
        assert len(goals) == len(boxes) == kwargs["num_boxes"]
        assert not goals & boxes, "a box starts on a goal"
        assert player in floor - boxes
        while env.ending is None:
            step = env.step(env.expert_action())
            assert "invalid" not in step.info
        assert env.ending == "solved", seed
    assert len(rooms) >= 0.7 * seeds


def test_the_expert_plays_a_shortest_plan() -> None:
    for seed in range(6):
        env = game(seed=seed)
        floor, goals, start = room_of(env)
        lengths = {start: 0}
        queue = deque([start])
        while queue[0][1] != goals:
            position = queue.popleft()
            for move in SHIFTS:
                after = moved(floor, position, move)
                if after is not None and after not in lengths:
                    lengths[after] = lengths[position] + 1
                    queue.append(after)
        while env.ending is None:
            env.step(env.expert_action())
        assert env.turn == lengths[queue[0]]


@given(seed=st.integers(0, 50), played=st.lists(moves, max_size=12))
@settings(max_examples=40)
def test_the_experts_move_depends_on_the_room_alone(seed: int, played: list[str]) -> None:
    used = game(seed=seed, dim_room=(7, 7), num_boxes=3, max_turns=60)
    for move in played:
        used.expert_action()
        play(used, move)
    for _ in range(10):
        if used.ending is not None:
            break
        fresh = game(dim_room=(7, 7), num_boxes=3, max_turns=60)
        fresh.room, fresh.player = used.room, used.player
        assert fresh.expert_action() == used.expert_action()
        used.step(used.expert_action())


@given(seed=st.integers(0, 2**32), variant=st.sampled_from(["easy", "hard", "random"]), played=st.lists(moves))
@settings(max_examples=60)
def test_play_follows_the_rules(seed: int, variant: str, played: list[str]) -> None:
    env = game(variant, seed=seed)
    floor, goals, position = room_of(env)
    for move in played:
        if env.ending is not None:
            break
        step = play(env, move)
        after = moved(floor, position, move)
        position = after or position
        assert room_of(env) == (floor, goals, position)  # walls, goals and boxes are preserved
        assert len(position[1]) == len(goals) == env.num_boxes
        if env.ending is None:
            assert step.info.get("invalid") == (None if after else "rule")
        assert (env.ending == "solved") == (position[1] == goals)


@given(seed=st.integers(0, 2**32), played=st.lists(moves, max_size=10))
@settings(max_examples=30)
def test_forks_are_independent(seed: int, played: list[str]) -> None:
    env = game(seed=seed)
    env.expert_action()
    before = env.board()
    for asks in (True, False):
        fork = env.fork()
        for move in played:
            if fork.ending is None:
                play(fork, move)
                if asks:
                    fork.expert_action()
    assert (env.board(), env.turn, env.ending) == (before, 0, None)
    while env.ending is None:
        env.step(env.expert_action())
    assert env.ending == "solved"


def test_the_random_player_makes_possible_moves() -> None:
    for seed in range(20):
        env = game("hard", seed=seed)
        while env.ending is None:
            assert "invalid" not in env.step(env.sample_random_action()).info


def test_partial_credit_rewards_each_box_once() -> None:
    env = at("######", "#__X_#", "#PXO_#", "#__O_#", "######", partial_credit=True)
    rewards = [play(env, move).reward for move in ("right", "right", "left", "up", "right", "right")]
    assert rewards[:2] == [0.5, 0.0]
    total = sum(rewards)
    while env.ending is None:
        total += env.step(env.expert_action()).reward
    assert total == (1.0 if env.ending == "solved" else 0.5)


def test_random_draws_every_level() -> None:
    env = game("random")
    drawn = set()
    for seed in range(40):
        env.reset(seed=seed)
        drawn.add((env.dim_room, env.num_boxes, env.max_turns))
    assert drawn == {((6, 6), 2, 20), ((7, 7), 3, 35), ((8, 8), 4, 50), ((8, 8), 5, 50)}


def test_the_prompt_explains_every_symbol() -> None:
    prompt, info = game("hard").reset(seed=1)
    assert isinstance(prompt, str)
    assert all(f"{symbol}: " in prompt for symbol in "PS#_OX√")
    assert "4 boxes" in prompt
    assert "50 turns" in prompt
    assert prompt.endswith(info["suffix"])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"dim_room": (4, 8)}, "dim_room"),
        ({"dim_room": (8, 21)}, "dim_room"),
        ({"dim_room": 6}, "dim_room"),
        ({"dim_room": (6, 6, 6)}, "dim_room"),
        ({"dim_room": ("6", "6")}, "dim_room"),
        ({"num_boxes": 0}, "num_boxes"),
        ({"num_boxes": 4}, "num_boxes must be a whole number from 1 to 3 in a room of 6 x 6"),
        ({"num_boxes": 6, "dim_room": (10, 10)}, "from 1 to 5"),
        ({"num_boxes": 2, "max_turns": 11}, "at least 12"),
        ({"num_boxes": None, "max_turns": 33}, "num_boxes"),
    ],
)
def test_bad_values_are_rejected(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        palestra.make("game:Sokoban-v0-easy", **kwargs)

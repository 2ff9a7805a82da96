from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.envs.games.tower_of_hanoi import TowerofHanoi
from palestra.errors import BadValue
from palestra.types import Step

LETTERS = "ABC"
moves = st.tuples(st.sampled_from(LETTERS), st.sampled_from(LETTERS))


def game(**kwargs: Any) -> TowerofHanoi:
    env = palestra.make("game:TowerofHanoi-v0-easy", **kwargs)
    assert isinstance(env, TowerofHanoi)
    env.reset(seed=0)
    return env


def play(env: TowerofHanoi, move: str) -> Step:
    return env.step(f"\\boxed{{{move}}}")


def towers(board: str) -> dict[str, list[int]]:
    """Parse the towers from the board."""
    lines = [line.split(": ") for line in board.splitlines()[-3:]]
    return {name: [] if disks == "empty" else [int(disk) for disk in disks.split()] for name, disks in lines}


def test_the_prompt_shows_the_start() -> None:
    prompt, info = palestra.make("game:TowerofHanoi-v0-hard").reset(seed=0)
    assert isinstance(prompt, str)
    assert towers(prompt) == {"A": [5, 4, 3, 2, 1], "B": [], "C": []}
    assert "35 turns" in prompt
    assert prompt.endswith(info["suffix"])


@given(st.lists(moves, max_size=60))
def test_play_follows_the_rules(played: list[tuple[str, str]]) -> None:
    env = game(num_disks=3, max_turns=1000)
    stacks: dict[str, list[int]] = {"A": [3, 2, 1], "B": [], "C": []}
    for source, target in played:
        step = play(env, f"{source} {target}")
        legal = source != target and stacks[source] and (stacks[target] or [9])[-1] > stacks[source][-1]
        if legal:
            stacks[target].append(stacks[source].pop())
        won = stacks["C"] == [3, 2, 1]
        assert isinstance(step.observation, str)
        assert towers(step.observation) == stacks
        assert step.info.get("invalid") == (None if legal else "rule")
        assert (step.terminated, step.reward) == (won, 1.0 if won else 0.0)
        if won:
            assert step.info["success"] is True
            return


@pytest.mark.parametrize(
    "text", ["A B", "a b", "AB", " A , B ", "a,b", "A->B", "A -> B", "A → B", "A to B", "(A, B)", "[a b]"]
)
def test_lenient_reading(text: str) -> None:
    assert play(game(), text).info["suffix"] == "A: 3 2\nB: 1\nC: empty"


@pytest.mark.parametrize(
    "text", ["", "A", "A D", "A B C", "1 2", "A B A B", "\u0410 \u0412", "A" * 256, " " * 256, "A" + " " * 255]
)
def test_unreadable(text: str) -> None:
    step = play(game(), text)
    assert (step.terminated, step.reward, step.info["ending"]) == (True, -0.1, "format")


def distances(disks: int) -> dict[tuple[int, ...], int]:
    """Return {position: distance from the solution} by breadth-first search; a position lists each disk's tower."""

    def neighbours(position: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for disk, place in enumerate(position):
            for to in {0, 1, 2} - {place}:
                if place not in position[:disk] and to not in position[:disk]:
                    yield (*position[:disk], to, *position[disk + 1 :])

    goal = (2,) * disks
    distance = {goal: 0}
    queue = deque([goal])
    while queue:
        here = queue.popleft()
        for neighbour in neighbours(here):
            if neighbour not in distance:
                distance[neighbour] = distance[here] + 1
                queue.append(neighbour)
    return distance


@pytest.mark.parametrize("disks", [1, 2, 3, 4, 5])
def test_the_expert_is_optimal_from_every_position(disks: int) -> None:
    env = game(num_disks=disks, max_turns=100)
    far = distances(disks)
    assert len(far) == 3**disks
    for position, distance in far.items():
        if distance:
            env.towers = tuple(  # type: ignore[assignment]
                sum(1 << disk for disk, place in enumerate(position) if place == tower) for tower in range(3)
            )
            fork = env.fork()
            fork.step(fork.expert_action())
            reached = tuple(
                next(i for i, tower in enumerate(fork.towers) if tower >> disk & 1) for disk in range(disks)
            )
            assert far[reached] == distance - 1


@pytest.mark.parametrize("variant", ["easy", "hard", "random"])
def test_the_expert_wins(variant: str) -> None:
    env = palestra.make(f"game:TowerofHanoi-v0-{variant}")
    for seed in range(10):
        env.reset(seed=seed)
        step = env.step(env.expert_action() or "")
        while not step.terminated:
            step = env.step(env.expert_action() or "")
        assert step.info["success"]


def test_the_random_player_makes_legal_moves() -> None:
    env = game(num_disks=4, max_turns=10_000)
    for _ in range(200):
        step = env.step(env.sample_random_action())
        assert "invalid" not in step.info
        if step.terminated:
            break


def test_levels_are_drawn() -> None:
    env = palestra.make("game:TowerofHanoi-v0-random")
    drawn = {env.reset(seed=seed)[1]["max_turns"] for seed in range(30)}
    assert drawn == {10, 20, 35}


def test_partial_credit_counts_disks_on_the_target() -> None:
    env = game(partial_credit=True)
    steps = [env.step(env.expert_action()) for _ in range(7)]
    assert [step.reward for step in steps] == pytest.approx([0, 0, 0, 1 / 3, 0, 1 / 3, 1 / 3])


def test_out_of_turns() -> None:
    env = game(num_disks=1, max_turns=1)
    step = play(env, "A B")
    assert (step.terminated, step.reward, step.info["success"]) == (True, 0.0, False)


@pytest.mark.parametrize(
    "kwargs", [{"num_disks": 0}, {"num_disks": 17}, {"max_turns": 6}, {"num_disks": 5, "max_turns": 30}]
)
def test_bad_values(kwargs: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        palestra.make("game:TowerofHanoi-v0-easy", **kwargs)


def test_a_fork_is_independent() -> None:
    env = game()
    fork = env.fork()
    play(fork, "A C")
    assert env.board() != fork.board()
    assert env.board() == game().board()

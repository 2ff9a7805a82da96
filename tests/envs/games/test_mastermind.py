from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.envs.games.mastermind import Mastermind, _guess
from palestra.errors import BadValue
from palestra.types import Step

LINE = re.compile(r"^((?:\d+ ?)+) gets (\d) black and (\d) white$", re.MULTILINE)


def game(variant: str = "hard", seed: int = 0, **kwargs: Any) -> Mastermind:
    env = palestra.make(f"game:Mastermind-v0-{variant}", **kwargs)
    assert isinstance(env, Mastermind)
    env.reset(seed=seed)
    return env


def play(env: Mastermind, guess: str) -> Step:
    return env.step(f"\\boxed{{{guess}}}")


def secret(env: Mastermind) -> list[int]:
    return [int(number) for number in env.solution().removeprefix("The code was ").rstrip(".").split()]


def pegs(guess: list[int], code: list[int]) -> tuple[int, int]:
    """Reference implementation that returns the numbers of black and white pegs."""
    black = sum(a == b for a, b in zip(guess, code, strict=True))
    return black, sum((Counter(guess) & Counter(code)).values()) - black


def history(env: Mastermind) -> list[tuple[list[int], tuple[int, int]]]:
    """Parse the guesses and their pegs from the board."""
    return [([int(n) for n in guess.split()], (int(b), int(w))) for guess, b, w in LINE.findall(env.board())]


@given(
    st.integers(0, 2**32),
    st.integers(1, 8),
    st.integers(2, 12),
    st.data(),
)
def test_pegs_with_duplicates(seed: int, length: int, numbers: int, data: st.DataObject) -> None:
    env = game(seed=seed, code_length=length, num_numbers=numbers, duplicate_numbers=True, max_turns=30)
    code = secret(env)
    guesses = data.draw(st.lists(st.lists(st.integers(1, numbers), min_size=length, max_size=length), max_size=5))
    seen: list[list[int]] = []
    for guess in guesses:
        step = play(env, " ".join(map(str, guess)))
        if guess in seen:
            assert step.info["invalid"] == "rule"
        else:
            seen.append(guess)
            assert history(env)[-1] == (guess, pegs(guess, code))
        assert step.terminated == (guess == code)
        if step.terminated:
            assert step.reward == 1.0
            return
    assert [guess for guess, _ in history(env)] == seen


@given(st.integers(0, 2**32), st.permutations(range(1, 9)))
def test_pegs_without_duplicates(seed: int, numbers: list[int]) -> None:
    env = game(seed=seed)
    code = secret(env)
    assert len(set(code)) == 4
    play(env, " ".join(map(str, numbers[:4])))
    assert history(env) == [(numbers[:4], pegs(numbers[:4], code))]


def test_the_last_observation_shows_every_guess() -> None:
    env = game(seed=3)
    for i in range(1, 6):
        step = play(env, f"{i} {i + 1} {i + 2} {i + 3}")
    lines = step.observation.splitlines()  # type: ignore[union-attr]
    assert [line.split(" gets ")[0] for line in lines[2:]] == ["1 2 3 4", "2 3 4 5", "3 4 5 6", "4 5 6 7", "5 6 7 8"]
    assert step.info["suffix"] in step.observation


@pytest.mark.parametrize(
    "text", ["5 2 7 1", "5,2,7,1", " 5, 2, 7, 1 ", "[5 2 7 1]", "(5, 2, 7, 1)", "5271", "5\n2\t7 1", "05 2 7 1"]
)
def test_lenient_reading(text: str) -> None:
    env = game()
    play(env, text)
    assert history(env)[0][0] == [5, 2, 7, 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "one two",
        "1 2 x 4",
        "1.5 2 3 4",
        "\u0661\u0662\u0663\u0664",
        "²",
        "1 2 3 4" + "0" * 240,
        "1_2 3 4 5",
        "\x00",
    ],
)
def test_unreadable(text: str) -> None:
    step = play(game(), text)
    assert (step.terminated, step.reward, step.info["invalid"], step.info["success"]) == (True, -0.1, "format", False)


@pytest.mark.parametrize(
    "text", ["1 2 3", "1 2 3 4 5", "12345", "0 1 2 3", "1 2 3 9", "-1 2 3 4", "1 2 3 999999999", "1 1 2 3"]
)
def test_rule_violations(text: str) -> None:
    env = game()
    step = play(env, text)
    assert (step.terminated, step.reward, step.info["invalid"]) == (False, 0.0, "rule")
    assert env.board() == ""
    assert "1 2 3 5" in play(env, "1 2 3 5").observation


def test_codes_without_spaces_are_ambiguous_beyond_nine() -> None:
    env = game(num_numbers=12)
    assert play(env, "1234").info["invalid"] == "rule"
    assert "invalid" not in play(env, "12 3 4 11").info


def test_a_repeated_guess_costs_a_turn_and_changes_nothing() -> None:
    env = game(seed=1, max_turns=3)
    play(env, "1 2 3 4")
    board = env.board()
    step = play(env, "1,2,3,4")
    assert step.info["invalid"] == "rule"
    assert env.board() == board
    assert play(env, "1 2 3 4").info["ending"] == "out_of_turns"


def test_the_solution_is_revealed_after_a_loss() -> None:
    env = game(max_turns=1, seed=5)
    code = secret(env)
    step = play(env, " ".join(map(str, reversed(code))))
    assert (step.reward, step.info["success"]) == (0.0, False)
    assert f"The code was {' '.join(map(str, code))}." in step.observation


@pytest.mark.parametrize(("variant", "seeds", "most"), [("easy", 200, 5), ("hard", 150, 8), ("random", 100, 8)])
def test_the_expert_wins_with_consistent_guesses(variant: str, seeds: int, most: int) -> None:
    env = game(variant)
    moves: dict[str, str] = {}
    for seed in range(seeds):
        prompt, _ = env.reset(seed=seed)
        transcript = str(prompt)
        while True:
            action = env.expert_action()
            assert moves.setdefault(transcript, action) == action  # the move depends only on visible information
            guess = [int(number) for number in re.findall(r"\d+", action)]
            assert all(pegs(guess, before) == answer for before, answer in history(env))
            step = env.step(action)
            transcript += f"{action}{step.observation}"
            if step.terminated:
                break
        assert step.info["success"]
        assert step.info["turn"] <= most


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 8), st.booleans())
def test_the_expert_continues_from_any_position(seed: int, turns: int, duplicates: bool) -> None:
    env = game(seed=seed, duplicate_numbers=duplicates)
    for _ in range(turns):
        if env.step(env.sample_random_action()).terminated:
            return
    while not (step := env.step(env.expert_action())).terminated:
        assert "invalid" not in step.info
    assert step.info["success"]


@pytest.mark.parametrize(
    ("length", "numbers", "duplicates"), [(6, 10, False), (6, 10, True), (1, 20, False), (8, 20, True)]
)
def test_large_codes_get_legal_guesses(length: int, numbers: int, duplicates: bool) -> None:
    env = game(seed=2, code_length=length, num_numbers=numbers, duplicate_numbers=duplicates)
    for _ in range(8):
        step = env.step(env.expert_action())
        assert "invalid" not in step.info
        if step.terminated:
            break


def test_a_search_at_its_limit_still_returns_a_new_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.envs.games.mastermind._MAX_STEPS", 0)
    env = game()
    for _ in range(5):
        assert "invalid" not in env.step(env.expert_action()).info


@given(st.integers(0, 2**32), st.booleans())
def test_the_random_player_follows_the_rules(seed: int, duplicates: bool) -> None:
    env = game(seed=seed, duplicate_numbers=duplicates)
    assert "invalid" not in env.step(env.sample_random_action()).info


def test_levels_are_drawn() -> None:
    env = game("random")
    drawn = set()
    for seed in range(40):
        env.reset(seed=seed)
        drawn.add((env.code_length, env.num_numbers, env.max_turns))
    assert drawn == {(2, 4, 10), (4, 6, 20), (4, 8, 30)}


def test_duplicates_need_fewer_numbers_and_are_mentioned_in_the_prompt() -> None:
    prompt, _ = palestra.make("game:Mastermind-v0-easy", code_length=5, num_numbers=3, duplicate_numbers=True).reset(
        seed=0
    )
    assert "more than once" in prompt
    assert r"\boxed{1 2 3 1 2}" in prompt


@pytest.mark.parametrize(
    "kwargs",
    [
        {"code_length": 0},
        {"code_length": 9},
        {"num_numbers": 1},
        {"num_numbers": 21},
        {"num_numbers": 3},
        {"max_turns": 0},
    ],
)
def test_bad_values(kwargs: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        palestra.make("game:Mastermind-v0-hard", **kwargs)


def test_partial_credit_sums_to_one() -> None:
    env = game(seed=4, partial_credit=True)
    total = 0.0
    while True:
        step = env.step(env.expert_action())
        total += step.reward
        assert step.reward >= 0.0
        if step.terminated:
            break
    assert total == pytest.approx(1.0)


def test_a_guess_that_could_be_the_code_is_rewarded() -> None:
    env = game("easy", consistent_reward=0.5, success_reward=2.0)
    env.code = _guess((1, 2))
    assert play(env, "1 3").reward == 0.5  # one black peg; nothing contradicts the first guess
    assert play(env, "3 1").reward == 0.0  # would have two white pegs for "1 3"
    assert play(env, "1 3").reward == 0.0  # repeated
    assert play(env, "1 4").reward == 0.5  # one black peg for "1 3", one white peg for "3 1"
    assert play(env, "1 2").reward == 2.0
    assert env.reward_range == (-0.1, 2.5)


def test_the_expert_is_always_consistent() -> None:
    env = game("easy", seed=3, consistent_reward=0.5)
    while not (step := env.step(env.expert_action())).terminated:
        assert step.reward == 0.5
    assert step.reward == 1.0


def test_without_history_an_observation_contains_only_the_last_guess() -> None:
    env = game("easy", seed=3, show_history=False)
    env.code = _guess((1, 2))
    assert play(env, "1 3").observation == "Turn 1 of 10: 1 3 gets 1 black and 0 white."
    step = play(env, "2 4")
    assert (step.observation, step.info["suffix"]) == ("Turn 2 of 10: 2 4 gets 0 black and 1 white.", "")
    assert play(env, "1 3").info["invalid"] == "rule"  # earlier guesses still count
    while not (step := env.step(env.expert_action())).terminated:
        assert "\n" not in step.observation
    assert env.ending == "solved"


def test_a_fork_is_independent() -> None:
    env = game()
    play(env, "1 2 3 4")
    board = env.board()
    fork = env.fork()
    play(fork, "5 6 7 8")
    assert env.board() == board
    assert "invalid" not in play(env, "5 6 7 8").info
    assert env.board() == fork.board()

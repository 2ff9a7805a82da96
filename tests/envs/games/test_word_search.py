"""Test the Word Search game."""

import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.envs.games.word_search import MAX_WORDS, WordSearch
from palestra.envs.games.words import common, rare
from palestra.errors import BadValue

SEEDS = st.integers(0, 2**32)


def new_game(variant: str = "easy", seed: int = 0, **kwargs: Any) -> WordSearch:
    env = cast(WordSearch, palestra.make(f"game:WordSearch-v0-{variant}", **kwargs))
    env.reset(seed=seed)
    return env


def read_board(text: object) -> tuple[list[str], set[tuple[int, int]], list[str], list[str]]:
    """Parse the observation: rows of letters, marked cells, words to find, and words found."""
    lines = str(text).split("\n")
    grid = [line for line in lines if re.match(r"R\d", line)]
    rows = [line[5::4] for line in grid]
    marked = {(i, j) for i, line in enumerate(grid) for j, mark in enumerate(line[4::4]) if mark == "["}
    return rows, marked, listed(lines, "Words to find: "), listed(lines, "Words found: ")


def listed(lines: list[str], name: str) -> list[str]:
    (line,) = [line for line in lines if line.startswith(name)]
    return [] if line == f"{name}none" else line.removeprefix(name).split(", ")


def occurrences(rows: list[str], word: str) -> list[tuple[int, int, int, int]]:
    """Return every occurrence of the word, as a move."""
    reach = len(word) - 1
    columns = ["".join(column) for column in zip(*rows, strict=True)]
    across = [
        (i, m.start(), i, m.start() + reach) for i, row in enumerate(rows) for m in re.finditer(f"(?={word})", row)
    ]
    down = [
        (m.start(), j, m.start() + reach, j) for j, line in enumerate(columns) for m in re.finditer(f"(?={word})", line)
    ]
    return across + down


def boxed(move: tuple[int, int, int, int]) -> str:
    return f"\\boxed{{{' '.join(map(str, move))}}}"


@given(st.integers(1, MAX_WORDS), st.booleans(), SEEDS)
def test_every_listed_word_occurs_in_a_square_grid(num_words: int, hardcore: bool, seed: int) -> None:
    env = WordSearch(num_words=num_words, hardcore=hardcore, max_turns=num_words)
    prompt, _ = env.reset(seed=seed)
    rows, marked, to_find, found = read_board(prompt)
    assert {len(row) for row in rows} == {len(rows)}
    assert all(re.fullmatch("[A-Z]+", row) for row in rows)
    assert len(set(to_find)) == num_words
    assert not found
    assert not marked
    pick = rare if hardcore else common
    for word in to_find:
        assert word.lower() in pick(len(word))
        assert occurrences(rows, word)
        assert not [other for other in to_find if word != other and word in other]


@given(SEEDS)
def test_registered_grids_are_one_and_a_half_times_the_longest_word(seed: int) -> None:
    env = new_game("hard", seed)
    rows, _, to_find, _ = read_board(env.board())
    longest = max(map(len, to_find))
    assert len(rows) == round(1.5 * longest) or longest < 7


@given(st.sampled_from(["easy", "hard", "random"]), SEEDS, st.integers(0, 10))
def test_the_expert_wins_from_the_start_and_from_the_middle(variant: str, seed: int, wasted: int) -> None:
    env = new_game(variant, seed)
    for _ in range(wasted):
        env.step(env.sample_random_action())
    turns = len(env.words) - len(env.found)
    for _ in range(turns):
        step = env.step(env.expert_action())
    assert step.info["success"]
    assert step.reward == 1.0
    _, _, to_find, found = read_board(step.observation)
    assert not to_find
    assert sorted(found) == sorted(env.words)


@given(SEEDS, st.booleans())
def test_any_occurrence_counts_from_either_end_and_is_marked(seed: int, swap: bool) -> None:
    env = new_game("easy", seed)
    rows, _, to_find, _ = read_board(env.board())
    word = to_find[-1]  # the shortest word often also occurs in the random letters
    row, column, end_row, end_column = occurrences(rows, word)[-1]
    move = (end_row, end_column, row, column) if swap else (row, column, end_row, end_column)
    step = env.step(boxed(move))
    assert f"{word} is one of the words." in step.observation
    after, marked, left, found = read_board(step.observation)
    assert after == rows
    assert marked == {(i, j) for i in range(row, end_row + 1) for j in range(column, end_column + 1)}
    assert found == [word]
    assert sorted([*left, word]) == sorted(to_find)


def with_word_twice() -> tuple[WordSearch, str, list[tuple[int, int, int, int]]]:
    for seed in range(10_000):
        env = new_game("easy", seed)
        rows, _, to_find, _ = read_board(env.board())
        for word in to_find:
            places = occurrences(rows, word)
            if len(places) > 1:
                return env, word, places
    raise AssertionError("no seed results in a grid that contains a word twice")


def test_a_second_occurrence_of_a_found_word_is_rejected() -> None:
    env, word, (first, second, *_) = with_word_twice()
    assert "invalid" not in env.step(boxed(first)).info
    before = env.board()
    step = env.step(boxed(second))
    assert step.info["invalid"] == "rule"
    assert f"you have already found {word}" in step.observation
    assert step.info["suffix"] == before


def test_a_line_that_is_not_a_listed_word_only_costs_a_turn() -> None:
    env = new_game()
    before = env.board()
    step = env.step("\\boxed{0 0 0 1}")
    rows, *_ = read_board(before)
    assert f"{rows[0][:2]} is not one of the words." in step.observation
    assert "invalid" not in step.info
    assert step.info["suffix"] == before


@pytest.mark.parametrize(
    ("move", "reason"),
    [
        ("0 0 0 99", "leaves the grid"),
        ("-1 0 2 0", "leaves the grid"),
        ("999999999 0 2 0", "leaves the grid"),
        ("0 0 3 3", "neither across nor down"),
        ("3 0 0 1", "neither across nor down"),
    ],
)
def test_lines_outside_the_grid_or_diagonal_are_rejected(move: str, reason: str) -> None:
    env = new_game()
    step = env.step(f"\\boxed{{{move}}}")
    assert step.info["invalid"] == "rule"
    assert reason in step.observation
    assert not step.terminated


@pytest.mark.parametrize("again", ["0 0 0 1", "0 1 0 0"])
def test_a_repeated_line_is_rejected(again: str) -> None:
    env = new_game()
    env.step("\\boxed{0 0 0 1}")
    step = env.step(f"\\boxed{{{again}}}")
    assert step.info["invalid"] == "rule"
    assert "already tried that line" in step.observation


@pytest.mark.parametrize("move", ["1 2 1 5", "1, 2, 1, 5", "[1 2 1 5]", "(1, 2) (1, 5)", "R1 C2 R1 C5", "r1c2, r1c5"])
def test_lenient_move_formats(move: str) -> None:
    assert new_game().parse(move) == (1, 2, 1, 5)


@pytest.mark.parametrize("move", ["", "1 2 3", "1 2 3 4 5", "a b c d", "APPLE", "1 2 1 5.0", "1 2 1 \u0665", "\0"])
def test_other_formats_end_the_game(move: str) -> None:
    env = new_game()
    step = env.step(f"\\boxed{{{move}}}")
    assert step.terminated
    assert step.reward == -0.1
    assert step.info["ending"] == "format"


@given(st.text(max_size=256))
def test_parse_never_raises(text: str) -> None:
    move = new_game().parse(text)
    assert move is None or len(move) == 4


def test_missed_words_are_listed_when_turns_run_out() -> None:
    env = new_game(max_turns=6)
    rows, _, (first, *others), _ = read_board(env.board())
    env.step(boxed(occurrences(rows, first)[0]))
    for _ in range(5):
        step = env.step("\\boxed{0 0 0 99}")
    assert step.info["ending"] == "out_of_turns"
    listed_words = str(step.observation).split("\n")[0].partition("Words not found: ")[2]
    assert re.findall("[A-Z]+", listed_words) == others


@given(SEEDS)
def test_partial_credit_sums_to_one(seed: int) -> None:
    env = new_game("easy", seed, partial_credit=True)
    rewards = [env.step(env.expert_action()).reward for _ in env.words]
    assert rewards == pytest.approx([0.2] * 5)


def test_a_fork_is_independent() -> None:
    env = new_game()
    fork = env.fork()
    before = env.board()
    fork.step(fork.expert_action())
    assert env.board() == before != fork.board()
    assert env.step(env.expert_action()).info["suffix"] == fork.board()


def test_none_is_drawn_for_every_episode() -> None:
    env = new_game("random")
    seen = set()
    for seed in range(60):
        env.reset(seed=seed)
        assert env.max_turns == 4 * env.num_words
        seen.add((env.num_words, env.hardcore))
    assert seen == {(count, hardcore) for count in (4, 5, 6) for hardcore in (False, True)}
    tight = WordSearch(num_words=None, hardcore=False, max_turns=2)
    tight.reset(seed=0)
    assert tight.num_words == 2


@pytest.mark.parametrize(
    "kwargs", [{"num_words": 0}, {"num_words": 51}, {"num_words": 5, "max_turns": 4}, {"max_turns": 0}]
)
def test_impossible_keywords_are_rejected(kwargs: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        WordSearch(**kwargs)

"""Test the Crosswords game."""

import re
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.envs.games.crosswords import CELLS_PER_WORD, MAX_WORDS, Crosswords, _fits, answers, clues
from palestra.errors import BadValue

CLUE_LINE = re.compile(
    r"\d+ (across|down), starts at row (\d+), column (\d+), (\d+) letters: (.*?)(?: \(solved: ([A-Z]+)\))?"
)
SEEDS = st.integers(0, 2**32)


def new_game(variant: str = "easy", seed: int = 0, **kwargs: Any) -> Crosswords:
    env = cast(Crosswords, palestra.make(f"game:Crosswords-v0-{variant}", **kwargs))
    env.reset(seed=seed)
    return env


def read_board(text: object) -> tuple[dict[tuple[int, int], str], list[re.Match[str]]]:
    """Parse the cells and the clues from the observation."""
    lines = str(text).split("\n")
    grid = {
        (int(line[1:4]), column): line[5 + 4 * column]
        for line in lines
        if re.match(r"R\d", line)
        for column in range((len(line) - 2) // 4)
        if line[5 + 4 * column] != "."
    }
    return grid, [match for line in lines if (match := CLUE_LINE.fullmatch(line))]


def cells_of(clue: re.Match[str]) -> list[tuple[int, int]]:
    row, column, length = int(clue[2]), int(clue[3]), int(clue[4])
    return [(row, column + i) if clue[1] == "across" else (row + i, column) for i in range(length)]


def runs(cells: set[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Return every run of two or more cells, across and down."""
    runs_of_cells = []
    for down, right in ((0, 1), (1, 0)):
        for row, column in cells:
            if (row - down, column - right) in cells:
                continue
            run = [(row, column)]
            while (run[-1][0] + down, run[-1][1] + right) in cells:
                run.append((run[-1][0] + down, run[-1][1] + right))
            if len(run) > 1:
                runs_of_cells.append(run)
    return runs_of_cells


@pytest.mark.parametrize(("hardcore", "count"), [(False, 220), (True, 180)])
def test_clues_are_many_short_and_do_not_contain_their_answer(hardcore: bool, count: int) -> None:
    assert len(clues(hardcore)) >= count
    for word, clue in clues(hardcore).items():
        assert re.fullmatch("[A-Z]{3,8}", word)
        assert 3 <= len(clue.split()) <= 10
        assert word not in re.findall("[A-Z]+", clue.upper())


def test_every_word_and_every_clue_is_listed_once() -> None:
    assert not clues(False).keys() & clues(True).keys()
    assert len(answers()) == len(clues(False)) + len(clues(True))
    assert len({clue.casefold() for clue in answers()}) == len(answers())


@given(st.integers(1, MAX_WORDS), st.booleans(), st.integers(0, 60), SEEDS)
def test_the_grid_is_a_crossword_that_fits_the_budget(words: int, hardcore: bool, spare: int, seed: int) -> None:
    turns = CELLS_PER_WORD * words + spare
    env = Crosswords(num_words=words, hardcore=hardcore, max_turns=turns)
    prompt, _ = env.reset(seed=seed)
    grid, entries = read_board(prompt)
    assert set(grid.values()) == {"_"}
    assert len(grid) <= turns
    assert len(entries) == words == len({clue[5] for clue in entries})
    listed = clues(hardcore)
    assert all(clue[5] in listed.values() for clue in entries)
    places = [cells_of(clue) for clue in entries]
    assert sorted(runs(set(grid))) == sorted(places)  # adjacent letters always belong to the same word
    reached = set(places[0])
    for _ in places:
        reached.update(cell for place in places if reached & set(place) for cell in place)
    assert reached == set(grid)  # all words are connected
    letters: dict[tuple[int, int], str] = {}
    for clue, place in zip(entries, places, strict=True):
        for cell, letter in zip(place, answers()[clue[5]], strict=True):
            assert letters.setdefault(cell, letter) == letter
    assert {row for row, _ in grid} == set(range(env.height))  # the grid has no empty rows or columns
    assert {column for _, column in grid} == set(range(env.width))


def test_a_word_is_never_written_over_another_one() -> None:
    grid = dict(enumerate("ANT", 1005))
    assert not _fits(grid, "ELEPHANT", 1000, 1, room=9)
    assert not _fits(grid, "ANT", 1005, 1, room=9)


@given(st.sampled_from(["easy", "hard", "random"]), SEEDS, st.integers(0, 8))
def test_the_expert_wins_from_the_start_and_after_wasted_turns(variant: str, seed: int, wasted: int) -> None:
    env = new_game(variant, seed)
    spare = env.max_turns - env.empty
    for _ in range(min(wasted, spare)):
        env.step(env.sample_random_action())
    step = env.step(env.expert_action())
    while not step.terminated:
        step = env.step(env.expert_action())
    assert step.info["success"]
    assert step.reward == 1.0
    _, entries = read_board(step.observation)
    assert [clue[6] for clue in entries] == [answers()[clue[5]] for clue in entries]


@given(SEEDS)
def test_the_expert_does_not_look_at_the_hidden_letters(seed: int) -> None:
    env, blinded = new_game("hard", seed), new_game("hard", seed)
    blinded.letters = "?" * len(blinded.letters)
    assert env.expert_action() == blinded.expert_action()


def test_a_wrong_letter_is_reported_and_not_written() -> None:
    env = new_game()
    row, column, letter = env.expert_move().split()
    before = env.board()
    wrong = "Q" if letter != "Q" else "Z"
    step = env.step(f"\\boxed{{{row} {column} {wrong}}}")
    assert f"{wrong} is wrong at row {row}, column {column}." in step.observation
    assert step.info["suffix"] == before
    assert "invalid" not in step.info
    assert not step.terminated


def test_a_correct_letter_is_written_once() -> None:
    env = new_game()
    action = env.expert_action()
    row, column, letter = env.expert_move().split()
    step = env.step(action)
    grid, _ = read_board(step.observation)
    assert grid[int(row), int(column)] == letter
    assert list(grid.values()).count("_") == len(grid) - 1
    again = env.step(action)
    assert again.info["invalid"] == "rule"
    assert "already filled" in again.observation
    assert again.info["suffix"] == step.info["suffix"]


@pytest.mark.parametrize("move", ["-1 0 a", "0 -1 a", "99 0 a", "0 99 a", "999999999 0 a"])
def test_cells_outside_the_grid_are_rejected(move: str) -> None:
    env = new_game()
    step = env.step(f"\\boxed{{{move}}}")
    assert step.info["invalid"] == "rule"
    assert "outside the grid" in step.observation


def test_cells_of_no_word_are_rejected() -> None:
    env = new_game()
    row, column = divmod(env.cells.index("."), env.width)
    step = env.step(f"\\boxed{{{row} {column} a}}")
    assert step.info["invalid"] == "rule"
    assert "belongs to no word" in step.observation


@pytest.mark.parametrize(
    "move", ["2 3 G", "2 3 g", " 2  3 g ", "2, 3, g", "[2 3 g]", "(2,3) G", "R2 C3 g", "2 3 'G'", "02 03 g"]
)
def test_lenient_move_formats(move: str) -> None:
    assert new_game().parse(move) == (2, 3, "G")


@pytest.mark.parametrize("move", ["", "2 3", "2 g", "2 3 gg", "2 3 4", "2 3 é", "2 3 g h", "a b c", "2.5 1 g", "\0"])
def test_other_formats_end_the_game(move: str) -> None:
    env = new_game()
    step = env.step(f"\\boxed{{{move}}}")
    assert step.terminated
    assert step.reward == -0.1
    assert step.info["ending"] == "format"
    assert "The words were " in step.observation


@given(st.text(max_size=256))
def test_parse_never_raises(text: str) -> None:
    move = new_game().parse(text)
    assert move is None or re.fullmatch("[A-Z]", move[2])


def test_the_words_are_revealed_when_turns_run_out() -> None:
    env = new_game(max_turns=12)
    for _ in range(12):
        step = env.step("\\boxed{99 99 x}")
    assert step.info["ending"] == "out_of_turns"
    _, entries = read_board(step.observation)
    for clue in entries:
        assert answers()[clue[5]] in step.observation


@given(SEEDS)
def test_partial_credit_sums_to_one(seed: int) -> None:
    env = new_game("easy", seed, partial_credit=True)
    rewards = [env.step(env.expert_action()).reward for _ in range(env.empty)]
    assert all(reward > 0 for reward in rewards)
    assert sum(rewards) == pytest.approx(1.0)


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
        seen.add((env.num_words, env.hardcore, env.max_turns))
    assert {(3, False, 30), (3, True, 40), (4, False, 40)} <= seen
    tight = Crosswords(num_words=None, hardcore=None, max_turns=13)
    for seed in range(20):
        tight.reset(seed=seed)
        assert tight.num_words == 3
        assert tight.empty <= 13


@pytest.mark.parametrize(
    "kwargs",
    [{"num_words": 0}, {"num_words": 16}, {"num_words": 5, "max_turns": 19}, {"num_words": None, "max_turns": 11}],
)
def test_impossible_keywords_are_rejected(kwargs: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        Crosswords(**kwargs)

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.envs.games import words
from palestra.envs.games.wordle import Wordle, mark
from palestra.errors import BadValue
from palestra.types import Step

few_letters = st.integers(3, 8).flatmap(lambda n: st.tuples(*[st.text("abc", min_size=n, max_size=n)] * 2))


def game(seed: int = 0, variant: str = "hard", **kwargs: Any) -> Wordle:
    env = palestra.make(f"game:Wordle-v0-{variant}", **kwargs)
    assert isinstance(env, Wordle)
    env.reset(seed=seed)
    return env


@cache
def seed_of(word: str) -> int:
    """Return a seed whose hidden word is `word`."""
    env = game(word_length=len(word))
    for seed in range(100_000):
        env.reset(seed=seed)
        if env.hidden == word:
            return seed
    raise AssertionError(f"no seed has the hidden word {word}")


def hiding(word: str, **kwargs: Any) -> Wordle:
    return game(seed_of(word), word_length=len(word), **kwargs)


def play(env: Wordle, guess: str) -> Step:
    return env.step(f"\\boxed{{{guess}}}")


def signs(guess: str, word: str) -> str:
    return mark(guess, word)[2::4]


@pytest.mark.parametrize(
    ("guess", "word", "expected"),
    [
        ("crane", "crane", "GGGGG"),
        ("cloud", "eight", "XXXXX"),
        ("speed", "abide", "XXYXY"),  # the word has one e, so only the first e in the guess is yellow
        ("speed", "erase", "YXYYX"),
        ("speed", "steal", "GXGXX"),  # the word's only e is green, so the other e in the guess is an X
        ("speed", "crepe", "XYGYX"),
        ("allow", "hello", "XYGYX"),
    ],
)
def test_marks(guess: str, word: str, expected: str) -> None:
    assert signs(guess, word) == expected
    assert mark(guess, word)[::4] == guess.upper()


@given(few_letters)
def test_marks_follow_the_rules(pair: tuple[str, str]) -> None:
    guess, word = pair
    marks = signs(guess, word)
    assert [sign == "G" for sign in marks] == [a == b for a, b in zip(guess, word, strict=True)]
    have, need = Counter(guess), Counter(word)
    for letter in "abc":
        own = [sign for a, sign in zip(guess, marks, strict=True) if a == letter]
        assert len(own) - own.count("X") == min(have[letter], need[letter])
        rest = "".join(own).replace("G", "")
        assert rest == "".join(sorted(rest, reverse=True))  # yellow marks come before X marks


@given(seed=st.integers(0, 10**6), data=st.data())
def test_the_game_and_mark_agree(seed: int, data: st.DataObject) -> None:
    env = game(seed, only_real_words=False)
    guess = data.draw(st.text(env.hidden + "xq", min_size=5, max_size=5))
    step = play(env, guess)
    assert step.info["suffix"].splitlines()[-1] == mark(guess, env.hidden)


def test_the_prompt_states_the_rules() -> None:
    prompt, info = palestra.make("game:Wordle-v0-hard").reset(seed=1)
    assert "5 letters" in prompt
    assert "25 turns" in prompt
    assert "real English word" in prompt
    assert "\\boxed{plant}" in prompt
    assert info["suffix"] == ""


def test_every_observation_shows_all_guesses() -> None:
    env = hiding("plant")
    play(env, "crane")
    step = play(env, "Total")
    assert step.observation == (
        "Turn 2 of 25: TOTAL is not the word.\nYour guesses so far:\nC=X R=X A=G N=G E=X\nT=Y O=X T=X A=Y L=Y"
    )
    step = play(env, "qqqqq")
    assert step.info["suffix"] == env.board()
    assert "C=X R=X A=G N=G E=X\nT=Y" in env.board()


def test_without_history_an_observation_shows_only_the_last_guess() -> None:
    env = hiding("plant", show_history=False)
    play(env, "crane")
    assert play(env, "Total").observation == "Turn 2 of 25: TOTAL is not the word: T=Y O=X T=X A=Y L=Y"
    assert play(env, "qqqqq").observation == (
        "Turn 3 of 25: QQQQQ is not in the dictionary. Guess a real English word of 5 letters."
    )
    assert (env.board(), list(env.marked)) == ("", ["crane", "total"])


def test_the_word_wins() -> None:
    env = hiding("plant")
    step = play(env, "PLANT")
    assert (step.reward, step.terminated, step.info["success"]) == (1.0, True, True)


@pytest.mark.parametrize("text", ["crane", " CRANE ", "c r a n e", "C,R,A,N,E", '"crane"', "c-r-a-n-e", "[crane]."])
def test_lenient_format(text: str) -> None:
    env = hiding("plant")
    play(env, text)
    assert list(env.marked) == ["crane"]


@pytest.mark.parametrize(
    "text", ["", " ", "5", "cr4ne", "crâne", "crane!", "\x00", "\uff23\uff32\uff21\uff2e\uff25", "crane\\sqrt{x}"]
)
def test_an_unreadable_guess_ends_the_game(text: str) -> None:
    step = play(hiding("plant"), text)
    assert (step.reward, step.terminated, step.info["ending"]) == (-0.1, True, "format")
    assert "The word was PLANT." in step.observation


@pytest.mark.parametrize(
    ("guess", "hint"),
    [
        ("tree", "TREE has 4 letters, but the word has 5."),
        ("a" * 256, "has 256 letters"),
        ("xyzzy", "XYZZY is not in the dictionary."),
        ("crane", "you have already guessed CRANE."),
    ],
)
def test_a_guess_against_the_rules_costs_a_turn_and_changes_nothing(guess: str, hint: str) -> None:
    env = hiding("plant")
    play(env, "crane")
    before = env.board()
    step = play(env, guess)
    assert step.info["invalid"] == "rule"
    assert hint in step.observation
    assert (step.reward, step.terminated, step.info["turn"]) == (0.0, False, 2)
    assert env.board() == before


def test_any_letters_without_only_real_words() -> None:
    env = hiding("plant", only_real_words=False)
    assert "any 5 letters" in env.rules()
    step = play(env, "xyzzy")
    assert "invalid" not in step.info
    assert step.info["suffix"].endswith("X=X Y=X Z=X Z=X Y=X")


def test_out_of_turns() -> None:
    env = hiding("plant", max_turns=2)
    play(env, "crane")
    step = play(env, "slate")
    assert (step.reward, step.terminated, step.info["ending"]) == (0.0, True, "out_of_turns")
    assert "The word was PLANT." in step.observation


def test_partial_credit_rewards_each_green_position_once_and_sums_to_one() -> None:
    env = hiding("plant", partial_credit=True)
    rewards = [play(env, guess).reward for guess in ("crane", "brand", "slant", "plant")]
    assert rewards == pytest.approx([0.4, 0.0, 0.4, 0.2])


def test_levels_are_drawn_for_none() -> None:
    env = palestra.make("game:Wordle-v0-random")
    assert isinstance(env, Wordle)
    drawn = set()
    for seed in range(40):
        env.reset(seed=seed)
        assert len(env.hidden) == env.word_length
        drawn.add((env.word_length, env.max_turns))
    assert drawn == {(3, 15), (4, 20), (5, 25)}


@pytest.mark.parametrize("length", [2, 11, -1, 5.0, "5", [5]])
def test_impossible_lengths_are_rejected(length: Any) -> None:
    with pytest.raises(BadValue, match="from 3 to 10"):
        game(word_length=length)


@pytest.mark.parametrize("length", range(3, 11))
def test_every_length_works(length: int) -> None:
    env = game(word_length=length, max_turns=30)
    assert env.hidden in words.common(length)
    assert env.example_move() in words.common(length)
    assert "invalid" not in play(env, env.example_move()).info
    while env.ending is None:
        env.step(env.expert_action())
    assert env.ending == "solved"


def test_the_expert_finds_every_word_of_three_letters() -> None:
    env = game(variant="easy")
    missed = set(words.common(3))
    for seed in range(4000):
        env.reset(seed=seed)
        if env.hidden in missed:
            while env.ending is None:
                env.step(env.expert_action())
            assert env.ending == "solved"
            missed.remove(env.hidden)
    assert len(missed) < 3  # almost every word was the hidden word for some seed


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), lead=st.integers(0, 12))
def test_the_expert_takes_over_from_any_player(seed: int, lead: int) -> None:
    env = game(seed)
    for _ in range(lead):
        if env.ending is None:
            env.step(env.sample_random_action())
    while env.ending is None:
        env.step(env.expert_action())
    assert env.ending == "solved"


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_the_expert_knows_only_what_the_player_knows(seed: int) -> None:
    env = game(seed)
    for _ in range(2):
        step = env.step(env.sample_random_action())
        if step.terminated:
            return
    other = env.fork()
    other.hidden = "zzzzz"
    assert other.expert_action() == env.expert_action()


def test_forks_are_independent() -> None:
    env = hiding("plant")
    play(env, "crane")
    fork = env.fork()
    first = play(fork, "slate")
    assert list(env.marked) == ["crane"]
    assert play(env, "slate") == first


def test_the_expert_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "import palestra\n"
        "env = palestra.make('game:Wordle-v0-hard')\n"
        "for seed in range(15):\n"
        "    env.reset(seed=seed)\n"
        "    while env.ending is None:\n"
        "        print(env.step(env.expert_action()).observation, env.sample_random_action())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1

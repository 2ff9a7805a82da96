from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.envs.games import words
from palestra.envs.games.hangman import Hangman
from palestra.errors import BadValue
from palestra.types import Step


def game(seed: int = 0, variant: str = "hard", **kwargs: Any) -> Hangman:
    env = palestra.make(f"game:Hangman-v0-{variant}", **kwargs)
    assert isinstance(env, Hangman)
    env.reset(seed=seed)
    return env


@cache
def seed_of(word: str) -> int:
    """Return a seed whose hidden word is `word`."""
    env = game(word_length=len(word))
    for seed in range(100_000):
        env.reset(seed=seed)
        if env.hidden == word.upper():
            return seed
    raise AssertionError(f"no seed has the hidden word {word}")


def hiding(word: str, **kwargs: Any) -> Hangman:
    return game(seed_of(word), "easy", word_length=len(word), **kwargs)


def play(env: Hangman, guess: str) -> Step:
    return env.step(f"\\boxed{{{guess}}}")


def test_the_prompt_states_the_rules() -> None:
    prompt, info = palestra.make("game:Hangman-v0-hard").reset(seed=1)
    assert "everyday English word of 7 letters" in prompt
    assert "20 turns" in prompt
    assert "\\boxed{e}" in prompt
    assert info["suffix"] == "Word: _ _ _ _ _ _ _\nIn the word:\nNot in the word:"


def test_guessing_letters() -> None:
    env = hiding("egg")
    assert (
        play(env, "a").observation
        == "Turn 1 of 10: A is not in the word.\nWord: _ _ _\nIn the word:\nNot in the word: A"
    )
    assert (
        play(env, "G").observation == "Turn 2 of 10: G is in the word.\nWord: _ G G\nIn the word: G\nNot in the word: A"
    )
    step = play(env, "e")  # revealing the last letter wins
    assert (step.reward, step.terminated, step.info["success"]) == (1.0, True, True)
    assert "Word: E G G" in step.observation


def test_guessing_words() -> None:
    env = hiding("egg")
    step = play(env, "cat")
    assert (step.reward, step.terminated, "invalid" in step.info) == (0.0, False, False)
    assert (
        step.observation
        == "Turn 1 of 10: CAT is not the word.\nWord: _ _ _\nIn the word:\nNot in the word:\nWords tried: CAT"
    )
    step = play(env, "Egg")
    assert (step.reward, step.info["ending"]) == (1.0, "solved")
    assert "Word: E G G" in step.observation


@given(seed=st.integers(0, 10**6), letters=st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), max_size=20))
def test_the_board_shows_only_the_guessed_letters(seed: int, letters: list[str]) -> None:
    env = game(seed, max_turns=100)
    tried: set[str] = set()
    for letter in letters:
        step = play(env, letter)
        assert (step.info.get("invalid") == "rule") == (letter in tried)
        tried.add(letter)
        hidden = env.hidden.lower()
        lines = step.info["suffix"].splitlines()
        assert lines[0].lower() == "word: " + " ".join(c if c in tried else "_" for c in hidden)
        assert set(lines[1].removeprefix("In the word:").lower().split()) == tried & set(hidden)
        assert set(lines[2].removeprefix("Not in the word:").lower().split()) == tried - set(hidden)
        assert step.terminated == (tried >= set(hidden))
        if step.terminated:
            assert step.info["success"] is True
            return


@pytest.mark.parametrize(
    ("guess", "hint"),
    [
        ("g", "you have already tried the letter G."),
        ("a", "you have already tried the letter A."),
        ("cat", "you have already tried the word CAT."),
        ("ab", "AB has 2 letters. Guess one letter or a word of 3 letters."),
        ("x" * 256, "has 256 letters"),
    ],
)
def test_a_guess_against_the_rules_costs_a_turn_and_changes_nothing(guess: str, hint: str) -> None:
    env = hiding("egg")
    for earlier in ("g", "a", "cat"):
        play(env, earlier)
    before = env.board()
    step = play(env, guess)
    assert step.info["invalid"] == "rule"
    assert hint in step.observation
    assert (step.reward, step.terminated, step.info["turn"]) == (0.0, False, 4)
    assert env.board() == before


@pytest.mark.parametrize("text", ["", " ", "7", "é", "e!", "\x00", "{}"])
def test_an_unreadable_guess_ends_the_game(text: str) -> None:
    step = play(hiding("egg"), text)
    assert (step.reward, step.terminated, step.info["ending"]) == (-0.1, True, "format")
    assert "The word was EGG." in step.observation


def test_out_of_turns() -> None:
    env = hiding("egg", max_turns=1)
    step = play(env, "e")
    assert (step.reward, step.terminated, step.info["ending"]) == (0.0, True, "out_of_turns")
    assert "The word was EGG." in step.observation


@pytest.mark.parametrize("guesses", ["g a e", "g egg", "egg"])
def test_partial_credit_sums_to_one(guesses: str) -> None:
    env = hiding("egg", partial_credit=True)
    rewards = [play(env, guess).reward for guess in guesses.split()]
    assert sum(rewards) == pytest.approx(1.0)
    if guesses.startswith("g "):
        assert rewards[0] == pytest.approx(2 / 3)


def test_hardcore_hides_rare_words() -> None:
    env = palestra.make("game:Hangman-v0-hard", hardcore=True)
    assert isinstance(env, Hangman)
    for seed in range(30):
        prompt, _ = env.reset(seed=seed)
        assert env.hidden.lower() in words.rare(7)
        assert "rare English word" in prompt
        while env.ending is None:
            env.step(env.expert_action())
        assert env.ending == "solved"


def test_levels_are_drawn_for_none() -> None:
    env = palestra.make("game:Hangman-v0-random")
    assert isinstance(env, Hangman)
    drawn = set()
    for seed in range(40):
        env.reset(seed=seed)
        assert len(env.hidden) == env.word_length
        drawn.add((env.word_length, env.max_turns))
    assert drawn == {(3, 10), (5, 15), (7, 20)}


@pytest.mark.parametrize("length", [2, 11, 5.0, "5"])
def test_impossible_lengths_are_rejected(length: Any) -> None:
    with pytest.raises(BadValue, match="from 3 to 10"):
        game(word_length=length)


@pytest.mark.parametrize("length", range(3, 11))
def test_every_length_works(length: int) -> None:
    env = game(word_length=length, max_turns=26)
    assert env.hidden.lower() in words.common(length)
    while env.ending is None:
        env.step(env.expert_action())
    assert env.ending == "solved"


def expert_rate(env: Hangman, seeds: range) -> float:
    won = 0
    for seed in seeds:
        env.reset(seed=seed)
        while env.ending is None:
            env.step(env.expert_action())
        won += env.ending == "solved"
    return won / len(seeds)


def test_the_expert_always_finds_longer_words() -> None:
    assert expert_rate(game(variant="hard"), range(400)) == 1.0
    assert expert_rate(game(word_length=5, max_turns=15), range(400)) == 1.0


def test_the_expert_finds_most_short_words() -> None:
    assert expert_rate(game(variant="easy"), range(1000)) > 0.75


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), lead=st.integers(0, 12), guess=st.sampled_from(["planner", "qqqqqqq", "a", "zz"]))
def test_the_expert_takes_over_from_any_player(seed: int, lead: int, guess: str) -> None:
    env = game(seed, max_turns=26)
    play(env, guess)
    for _ in range(lead):
        if env.ending is None:
            env.step(env.sample_random_action())
    while env.ending is None:
        assert "invalid" not in env.step(env.expert_action()).info
    assert env.ending == "solved"


@given(seed=st.integers(0, 10**6))
def test_the_expert_knows_only_what_the_player_knows(seed: int) -> None:
    env = game(seed)
    for _ in range(3):
        env.step(env.sample_random_action())
    other = env.fork()
    other.hidden = "ZZZZZZZ"
    assert other.expert_action() == env.expert_action()


def test_the_random_player_never_repeats_a_letter() -> None:
    env = game(variant="easy", max_turns=26)
    while env.ending is None:
        assert "invalid" not in env.step(env.sample_random_action()).info
    assert env.ending == "solved"


def test_forks_are_independent() -> None:
    env = hiding("egg")
    play(env, "g")
    fork = env.fork()
    first = play(fork, "cat")
    assert env.wrong == []
    assert play(env, "cat") == first

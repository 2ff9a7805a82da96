"""Test the embedded word lists."""

import re
import subprocess
import sys
from importlib.resources import files

import pytest

from palestra.envs.games import words
from palestra.envs.games.data import build_words

LENGTHS = range(words.SHORTEST, words.LONGEST + 1)


@pytest.mark.parametrize("length", LENGTHS)
def test_lists_are_plain_sorted_words_of_the_length(length: int) -> None:
    for listed in (words.common(length), words.rare(length)):
        assert list(listed) == sorted(set(listed))
        assert len(listed) > 100
    assert all(re.fullmatch(f"[a-z]{{{length}}}", word) for word in words.real(length))


@pytest.mark.parametrize("length", LENGTHS)
def test_common_and_rare_share_nothing_and_are_real(length: int) -> None:
    common, rare, real = set(words.common(length)), set(words.rare(length)), words.real(length)
    assert not common & rare
    assert common | rare < real


@pytest.mark.parametrize("length", LENGTHS)
def test_nothing_offensive(length: int) -> None:
    assert not [word for word in words.real(length) if build_words.BLOCKED.fullmatch(word)]
    secrets = (*words.common(length), *words.rare(length))
    assert not [word for word in secrets if build_words.UNFIT.fullmatch(word)]


def test_everyday_words_are_common_and_unusual_ones_are_not() -> None:
    for word in ("fox", "does", "tree", "crane", "apple", "bridge", "kitchen", "children", "adventure", "basketball"):
        assert word in words.common(len(word))
    for word in ("auk", "onyx", "agate", "warlock"):
        assert word in words.rare(len(word))
    for word in ("foxes", "colour", "favourite", "tares"):  # valid guesses that are never the hidden word
        assert word in words.real(len(word)) - set(words.common(len(word))) - set(words.rare(len(word)))
    for word in ("bob's", "qqq", "xyzzy", "london", "nasa"):
        assert word not in words.real(len(word))


def test_other_lengths_are_empty() -> None:
    for length in (-1, 0, 2, 11):
        assert words.common(length) == words.rare(length) == ()
        assert words.real(length) == frozenset()


def test_only_the_requested_length_is_read() -> None:
    code = (
        "from palestra.envs.games import words\n"
        "words.common(5)\n"
        "assert (words.common.cache_info().currsize, words.rare.cache_info().currsize) == (1, 0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_licence_is_included() -> None:
    text = (files("palestra.envs.games") / "data" / "LICENSE.scowl").read_text(encoding="utf-8")
    assert "Copyright 2000-2018 by Kevin Atkinson" in text
    assert "modified selection of SCOWL" in text


@pytest.mark.parametrize(
    ("word", "vocabulary", "expected"),
    [
        ("foxes", {"fox"}, True),
        ("cries", {"cry"}, True),
        ("hopped", {"hop"}, True),
        ("river", {"rive"}, False),
        ("making", {"make"}, True),
        ("taller", {"tall", "tallest"}, True),
        ("writer", {"write"}, False),
        ("glass", {"glas"}, False),
    ],
)
def test_inflections_are_recognized(word: str, vocabulary: set[str], expected: bool) -> None:
    assert build_words.inflected(word, vocabulary | {word}) is expected

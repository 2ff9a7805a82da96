"""Test that permutations and splits are consistent in both directions."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.envs.world import names
from palestra.envs.world.shuffle import Permutation, Split

keys = st.binary(min_size=1, max_size=32)


@given(st.integers(1, 400), keys)
def test_a_permutation_is_invertible(size: int, key: bytes) -> None:
    shuffle = Permutation(size, key)
    images = [shuffle(number) for number in range(size)]
    assert sorted(images) == list(range(size))
    assert [shuffle.inverse(image) for image in images] == list(range(size))


@given(st.integers(0, 10**6 - 1), keys)
def test_a_large_permutation_is_invertible(number: int, key: bytes) -> None:
    shuffle = Permutation(10**6, key)
    assert shuffle.inverse(shuffle(number)) == number


def test_a_permutation_shuffles() -> None:
    shuffle = Permutation(1000, b"k")
    images = [shuffle(number) for number in range(1000)]
    assert sum(image == number for number, image in enumerate(images)) < 10
    steps = [(b - a) % 1000 for a, b in pairwise(images)]
    assert len(set(steps)) > 500  # the distance between images of adjacent numbers varies


@given(st.integers(1, 300), st.integers(1, 80), st.integers(0, 2), keys)
@settings(max_examples=60)
def test_parent_inverts_children(children: int, parents: int, least: int, key: bytes) -> None:
    split = Split(children, parents, key, least=least)
    owned = [child for parent in range(parents) for child in split.of(parent)]
    assert owned == list(range(children))
    assert all(child in split.of(split.parent(child)) for child in range(children))


def test_every_parent_gets_the_minimum() -> None:
    split = Split(3000, 1000, b"k", least=2)
    sizes = [len(split.of(parent)) for parent in range(1000)]
    assert min(sizes) >= 2
    assert len(set(sizes)) > 3  # sizes vary


@given(st.integers(0, names.stems(2) - 1), st.integers(0, names.stems(2) - 1), st.data())
def test_different_numbers_have_different_names(one: int, other: int, data: st.DataObject) -> None:
    endings = sorted({ending for kind in names.ENDINGS.values() for ending in kind})
    first = names.stem(one, 2) + data.draw(st.sampled_from(endings))
    second = names.stem(other, 2) + data.draw(st.sampled_from(endings))
    assert first != second or one == other


def test_titles_of_works_are_unique() -> None:
    plain = {names.plain_title(number) for number in range(names.PLAIN_TITLES)}
    sample = range(0, names.LONG_TITLES, 7)
    long = {names.long_title(number) for number in sample}
    assert (len(plain), len(long), len(plain | long)) == (names.PLAIN_TITLES, len(sample), len(plain) + len(sample))
    ends = {title.rpartition(" of the ")[2] for title in long}
    assert not {f"The {end}" for end in ends} & plain

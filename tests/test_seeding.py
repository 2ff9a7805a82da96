"""Test that random numbers depend only on the seed, even after copying and pickling the generator."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.seeding import Rng, child_seed, copy_rng, nth_seed

SEEDS = st.integers(0, 2**70)
DRAWS: dict[str, Callable[[Random], Any]] = {
    "random": lambda rng: rng.random(),
    "bits": lambda rng: rng.getrandbits(7),
    "many bits": lambda rng: rng.getrandbits(100),
    "no bits": lambda rng: rng.getrandbits(0),
    "randint": lambda rng: rng.randint(1, 50),
    "rejection": lambda rng: rng.randrange(2**31 + 1),  # rejection sampling rejects half of the values
    "choice": lambda rng: rng.choice("abc"),
    "shuffle": lambda rng: rng.sample(range(9), 9),
    "gauss": lambda rng: rng.gauss(0, 1),
    "bytes": lambda rng: rng.randbytes(3),
    "choices": lambda rng: rng.choices("abcd", k=3),
}
SCRIPT = st.lists(st.sampled_from(sorted(DRAWS)), max_size=30)


def play(rng: Random, script: list[str]) -> list[Any]:
    return [DRAWS[name](rng) for name in script]


@given(seed=SEEDS, script=SCRIPT)
def test_the_seed_determines_the_draws(seed: int, script: list[str]) -> None:
    assert play(Rng(seed), script) == play(Rng(seed), script)


@given(first=SEEDS, seed=SEEDS, before=SCRIPT, script=SCRIPT)
def test_a_restarted_generator_equals_a_new_one(first: int, seed: int, before: list[str], script: list[str]) -> None:
    rng = Rng(first)
    play(rng, before)
    if type(rng) is Rng:
        rng.restart(seed)
        assert play(rng, script) == play(Rng(seed), script)


@given(seed=SEEDS, ends=st.lists(st.tuples(st.integers(-(2**66), 2**66), st.integers(0, 2**66)), max_size=20))
def test_randint_equals_randrange(seed: int, ends: list[tuple[int, int]]) -> None:
    one, other = Rng(seed), Rng(seed)
    for low, width in ends:
        assert one.randint(low, low + width) == other.randrange(low, low + width + 1)


@given(seed=SEEDS, before=SCRIPT, after=SCRIPT, how=st.sampled_from(["copy_rng", "pickle", "deepcopy", "state"]))
def test_a_copy_draws_the_same_and_is_independent(seed: int, before: list[str], after: list[str], how: str) -> None:
    rng = Rng(seed)
    play(rng, before)
    if how == "copy_rng":
        clone = copy_rng(rng)
    elif how == "pickle":
        clone = pickle.loads(pickle.dumps(rng))
    elif how == "deepcopy":
        clone = copy.deepcopy(rng)
    else:
        clone = Rng(1)
        clone.setstate(rng.getstate())
    play(clone, after)  # using the copy must not change the original
    again = copy_rng(rng)
    assert play(rng, after) == play(again, after)
    assert play(copy_rng(clone), after) == play(rng, after)


@given(seed=SEEDS, script=SCRIPT)
def test_getstate_and_repr_change_nothing(seed: int, script: list[str]) -> None:
    watched, other = Rng(seed), Rng(seed)
    for name in script:
        watched.getstate()
        repr(watched)
        assert DRAWS[name](watched) == DRAWS[name](other)


def test_the_generator_switches_to_the_built_in_methods() -> None:
    """Check that the generator uses the built-in methods without overrides after the first few numbers."""
    rng: Random = Rng(3)
    for _ in range(20):
        rng.random()
    assert type(rng) is Random


def test_seed_uses_pythons_generator() -> None:
    rng = Rng(3)
    rng.seed(5)
    assert rng.random() == Random(5).random()


@pytest.mark.parametrize("k", [-1, 65, 1000])
def test_unusual_numbers_of_bits_are_left_to_python(k: int) -> None:
    if k < 0:
        with pytest.raises(ValueError, match="number of bits"):
            Rng(1).getrandbits(k)
    else:
        assert 0 <= Rng(1).getrandbits(k) < 2**k


@pytest.mark.parametrize("draw", [0, 1, 11, 12, 13, 40], ids=lambda n: f"draw {n}")
def test_consecutive_seeds_give_uniform_digits(draw: int) -> None:
    """Check with a chi-squared test that digits are uniform over seeds 0 to 9,999, in early and later numbers."""
    counts = [0] * 10
    for seed in range(10_000):
        rng = Rng(seed)
        for _ in range(draw):
            rng.random()
        counts[rng.randrange(10)] += 1
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 33.7  # p = 0.0001 at 9 degrees of freedom


def test_consecutive_seeds_are_uncorrelated() -> None:
    """Check that the first random numbers of seeds s and s + 1 are uncorrelated."""
    firsts = [Rng(seed).random() - 0.5 for seed in range(20_000)]
    both = sum(a * b for a, b in pairwise(firsts)) / len(firsts)
    assert abs(both * 12) < 4 / len(firsts) ** 0.5


@given(root=SEEDS)
def test_seed_sequences_do_not_overlap(root: int) -> None:
    sequence = [nth_seed(root, number) for number in range(50)]
    assert len({*sequence, *(nth_seed(root + 1, number) for number in range(50))}) == 100
    assert all(0 <= seed < 2**48 for seed in sequence)


def test_child_seeds_depend_on_the_path() -> None:
    assert child_seed(1, "a", 2) == child_seed(1, "a", 2)
    assert len({child_seed(1), child_seed(1, "a"), child_seed(1, "a", 2), child_seed(2, "a")}) == 4


def test_an_argument_may_convert_the_generator() -> None:
    """Check a nested `rng.randint`: the outer method is looked up before its argument is evaluated."""
    rng = Rng(1)
    for _ in range(500):
        assert 0 <= rng.randint(0, 10 ** rng.randint(1, 3)) <= 1000
    assert type(rng) is Random

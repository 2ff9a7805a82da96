"""Sample hidden test inputs around the values at which a program branches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, overload

from palestra.envs.code.programs import CHARACTERS, FUNCTION, NUMBER_RANGES, Program, run_program, word
from palestra.grading import CallTest

EXTRA_TESTS = 60  # hidden tests per program in addition to its own inputs
_MAX_NUMBER = 5_000  # maximum value derived from a program's constants
_MAX_LENGTH = 40  # longest list or string whose length is derived from a constant in the program
_LENGTHS, _NUMBERS = range(1, 13), range(-12, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Values derived from a program's constants, near which its result is likely to change."""

    numbers: tuple[int, ...]
    lengths: tuple[int, ...]
    letters: str  # characters in the program's string constants

    @classmethod
    def from_source(cls, source: str) -> Hints:
        constants = sorted({int(digits) for digits in re.findall(r"\b\d+\b", source)})
        # Include sums and products of constants, because an operation may shift or scale a value before it is compared.
        combined = {0, *constants}
        for a in constants:
            combined |= {-a} | {value for b in constants for value in (a - b, a + b, a * b, a // b if b else 0)}
        near = {value + offset for value in combined for offset in (-1, 0, 1)}
        lengths = {value + offset for value in (1, 2, *constants) for offset in (-1, 0, 1)}
        return cls(
            numbers=tuple(sorted(value for value in near if abs(value) <= _MAX_NUMBER)),
            lengths=tuple(sorted(length for length in lengths if 0 <= length <= _MAX_LENGTH)),
            letters="".join(sorted(set("".join(re.findall(r"[\"']([a-zA-Z]+)[\"']", source))))) or "ae",
        )


def sample_value(rng: Random, kind: str, hints: Hints) -> Any:
    """Return a random value of a kind in TYPES; about half of its parts are chosen from `hints`."""
    if kind == "number":
        return abs(rng.choice(hints.numbers)) if rng.random() < 0.6 else rng.randrange(10 ** rng.randint(1, 6))
    length = rng.choice(hints.lengths if rng.random() < 0.5 else _LENGTHS)
    if kind == "numbers":
        return _sample_numbers(rng, length, hints)
    if kind == "words":
        return _sample_words(rng, min(length, 10), hints)
    few = rng.random() < 0.3  # few different characters, so that there are long runs of equal characters
    return "".join(rng.choices(hints.letters + "aZ 5" if few else hints.letters * 3 + CHARACTERS, k=length))


def _sample_numbers(rng: Random, length: int, hints: Hints) -> list[int]:
    choice = rng.random()
    if choice < 0.25:  # few different values, so that there are ties, duplicates and small differences
        value = rng.choice(hints.numbers)
        pool: Sequence[int] = (value, value + 1, value - 1, rng.choice(hints.numbers), rng.randint(-3, 9))
    elif choice < 0.5:
        pool = rng.choice(NUMBER_RANGES)
    else:
        pool = (*rng.choices(hints.numbers, k=8), *rng.choices(_NUMBERS, k=8))
    result = rng.choices(pool, k=length)
    return sorted(result) if rng.random() < 0.1 else result


def _sample_words(rng: Random, length: int, hints: Hints) -> list[str]:
    letters = hints.letters.lower() + "ab"
    pool = ["".join(rng.choices(letters, k=max(1, min(size, 10)))) for size in rng.choices(hints.lengths, k=3)]
    half = word(rng)[:3]
    pool += [half + half[::-1], word(rng), word(rng)]
    return rng.choices(pool, k=length) if rng.random() < 0.5 else rng.sample(pool, min(length, len(pool)))


class HiddenTests(Sequence[CallTest]):
    """Hidden tests, which are generated when they are first used, so that `reset` does not have to wait for them.

    There is one test per program input, with the expected results in `outputs`, and EXTRA_TESTS more tests. A pickle
    contains the generated tests.
    """

    def __init__(self, seed: int, program: Program, outputs: list[Any]) -> None:
        self._seed, self._program, self._outputs = seed, program, outputs

    @cached_property
    def tests(self) -> tuple[CallTest, ...]:
        program, rng = self._program, Random(self._seed)
        hints = Hints.from_source(program.source)
        extra = [program.sample(rng, hints) for _ in range(EXTRA_TESTS)]
        cases = zip((*program.inputs, *extra), (*self._outputs, *run_program(program.source, extra)), strict=True)
        different = {repr(args): (args, output) for args, output in cases}
        return tuple(CallTest(function=FUNCTION, args=args, expected=(out,)) for args, out in different.values())

    def __len__(self) -> int:
        return len(self.tests)

    @overload
    def __getitem__(self, index: int) -> CallTest: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[CallTest, ...]: ...
    def __getitem__(self, index: int | slice) -> CallTest | tuple[CallTest, ...]:
        return self.tests[index]

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (list(self.tests),)


def hidden_tests(rng: Random, program: Program, outputs: list[Any]) -> HiddenTests:
    """Return the hidden tests for a program whose inputs have the results `outputs`."""
    return HiddenTests(rng.getrandbits(64), program, outputs)

"""Reference programs: a statement in English, the Python that does it, and inputs to try it on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Args = tuple[Any, ...]

FUNCTION = "solve"
COUNT = 12  # inputs that a program is judged by
TYPES = {
    "numbers": "a list of whole numbers",
    "words": "a list of words, non-empty strings of lower-case letters",
    "text": "a string of ASCII letters, digits and spaces",
    "number": "a whole number from 0 up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`code` are the lines of a function's body, without indentation; it ends with a return."""

    takes: tuple[tuple[str, str], ...]  # the arguments: name and what it is, in English
    task: str  # what it does, sentences
    code: tuple[str, ...]
    inputs: tuple[Args, ...]  # edge cases first
    gives: str  # the kind of its result, one of TYPES; a number may be negative

    @property
    def source(self) -> str:
        names = ", ".join(name for name, _ in self.takes)
        return "\n".join([f"def {FUNCTION}({names}):", *(f"    {line}".rstrip() for line in self.code)])

    @property
    def heading(self) -> str:
        parts = [f"`{name}` ({what})" for name, what in self.takes]
        names = ", ".join(name for name, _ in self.takes)
        listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
        return f"a function `{FUNCTION}({names})` that takes {listed}"


def compiled(source: str) -> Callable[..., Any]:
    """The function that a program of ours defines."""
    space: dict[str, Any] = {}
    exec(compile(source, "<reference>", "exec"), space)  # noqa: S102  # written by the generator, never by a player
    function: Callable[..., Any] = space[FUNCTION]
    return function


def results(source: str, inputs: Sequence[Args]) -> list[Any]:
    """What a reference returns for each input; references neither raise nor change their arguments."""
    function = compiled(source)
    return [function(*args) for args in inputs]


def ordinal(number: int) -> str:
    """`2nd`, `11th`."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ends.get(number % 10, 'th')}"


def call_shown(args: Args) -> str:
    return f"{FUNCTION}({', '.join(map(repr, args))})"


def drawn_inputs(rng: Random, kind: str, count: int) -> list[Any]:
    """Values of a kind: the edges, then anything, growing."""
    if kind == "number":
        edges: list[Any] = [0, 1, 2, 10, 97]
        return edges + [rng.randint(3, 10 ** rng.randint(2, 6)) for _ in range(count - len(edges))]
    if kind == "numbers":
        edges = [[], [rng.randint(-9, 9)], [4] * 5, [0, 0, 1], sorted(rng.sample(range(-20, 30), 8))]
        return edges + [numbers(rng, rng.randint(2, 6 + i)) for i in range(count - len(edges))]
    if kind == "words":
        edges = [[], [word(rng)], ["a", "a", "b"], ["level", "noon", "area"]]
        return edges + [[word(rng) for _ in range(rng.randint(2, 5 + i // 2))] for i in range(count - len(edges))]
    edges = ["", rng.choice("aeiouxyz"), "aabbbc", "Abc xyZ 12"]
    return edges + [text(rng, rng.randint(4, 10 + 2 * i)) for i in range(count - len(edges))]


def numbers(rng: Random, count: int) -> list[int]:
    low, high = rng.choice(((-10, 10), (0, 20), (-30, 60), (1, 9)))
    return [rng.randint(low, high) for _ in range(count)]


def word(rng: Random) -> str:
    return "".join(rng.choice("aabcdeeghiilmnooprstu") for _ in range(rng.randint(1, 7)))


def text(rng: Random, length: int) -> str:
    letters = "aabcdeeefghiijklmnoooprstuuvwxyzABCDEIOXYZ0123456789    "
    return "".join(rng.choice(letters) for _ in range(length))

"""Reference programs, which consist of a description in English, Python code and test inputs."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palestra.envs.code.boundaries import Hints

Args = tuple[Any, ...]

FUNCTION = "solve"
COUNT = 12  # test inputs per program
TYPES = {
    "numbers": "a list of integers",
    "words": "a list of non-empty strings of lowercase letters",
    "text": "a string of ASCII letters, digits and spaces",
    "number": "a non-negative integer",
}
NUMBER_RANGES = (range(-10, 11), range(21), range(-30, 61), range(1, 10))
CHARACTERS = "aabcdeeefghiijklmnoooprstuuvwxyzABCDEIOXYZ0123456789    "
_LETTERS = "aabcdeeghiilmnooprstu"
_TOKEN = re.compile(r"""(\.\w+)|([A-Za-z_]\w*)|("[^"]*"|'[^']*')|(-?\d+)|(\n *|[^\w\s])""")
_KNOWN_NAMES = {*keyword.kwlist, *dir(builtins)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A reference program. `code` is the unindented body of its function and ends with a return statement."""

    takes: tuple[tuple[str, str], ...]  # name and description of each argument
    task: str  # description of the program, in one or more sentences
    code: tuple[str, ...]
    inputs: tuple[Args, ...]  # edge cases first
    gives: str  # kind of the result, which is a key in TYPES; a number may be negative
    sample: Callable[[Random, Hints], Args]  # samples further inputs for hidden tests

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


@lru_cache(maxsize=32)
def compile_function(source: str) -> Callable[..., Any]:
    """Return the function that a reference program defines."""
    space: dict[str, Any] = {}
    exec(compile(source, "<reference>", "exec"), space)  # noqa: S102  # generated code, not an agent's code
    function: Callable[..., Any] = space[FUNCTION]
    return function


def run_program(source: str, inputs: Sequence[Args]) -> list[Any]:
    """Return the result of a reference program for each input. The program must not raise or mutate its arguments."""
    function = compile_function(source)
    return [function(*args) for args in inputs]


def program_structure(source: str) -> str:
    """Return a program with its variables renamed in order of appearance and its constants replaced by placeholders.

    Two programs with the same structure differ at most in their variable names and constants.
    """
    names: dict[str, str] = {}
    tokens = []
    for dot, name, string, number, other in _TOKEN.findall(source):
        if dot or name in _KNOWN_NAMES:
            tokens.append(dot or name)
        elif name:
            tokens.append(names.setdefault(name, f"v{len(names)}"))
        else:
            tokens.append("S" if string else "N" if number else other)
    return " ".join(tokens)


def ordinal(number: int) -> str:
    """Return a number as an ordinal such as `2nd` or `11th`."""
    suffixes = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else suffixes.get(number % 10, 'th')}"


def format_call(args: Args) -> str:
    return f"{FUNCTION}({', '.join(map(repr, args))})"


def draw_inputs(rng: Random, kind: str, count: int) -> list[Any]:
    """Return `count` inputs of the given kind. Edge cases come first, followed by random values of increasing size."""
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
    return rng.choices(rng.choice(NUMBER_RANGES), k=count)


def word(rng: Random) -> str:
    return "".join(rng.choices(_LETTERS, k=rng.randint(1, 7)))


def text(rng: Random, length: int) -> str:
    return "".join(rng.choices(CHARACTERS, k=length))

"""Building blocks for algorithmic problems: descriptions, input constraints, result forms and samplers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from textwrap import dedent, indent
from typing import Any

from palestra.envs.code.programs import FUNCTION, Args, program_structure

Sampler = Callable[[Random], Args]


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """An algorithmic problem with its reference solution.

    `small` samples inputs that a brute-force solution can handle, and `large` samples inputs on which an exponential
    solution exceeds the time limit. `choices` contains the problem's variant and constants.
    """

    kind: str
    takes: tuple[tuple[str, str], ...]  # name and description of each argument
    intro: str  # definitions that the result's description needs
    result: str  # noun phrase that describes the result
    code: str  # body of the reference solution, which returns the result
    gives: str  # "natural" (at least 0), "number" or "numbers"
    edges: tuple[Args, ...]
    small: Sampler
    large: Sampler
    choices: Mapping[str, Any]
    form: str = "plain"
    form_constant: int = 0

    @property
    def source(self) -> str:
        names = ", ".join(name for name, _ in self.takes)
        body = indent(dedent(self.code).strip("\n"), "    ")
        if self.form == "plain":
            return f"def {FUNCTION}({names}):\n{body}"
        expression = FORMS[self.gives][self.form][1].replace("{k}", str(self.form_constant))
        return (
            f"def find({names}):\n{body}\n\n\ndef {FUNCTION}({names}):\n    r = find({names})\n    return {expression}"
        )

    @property
    def structure(self) -> str:
        return program_structure(self.source)

    @property
    def heading(self) -> str:
        parts = [f"`{name}` ({what})" for name, what in self.takes]
        listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
        return f"a function `{FUNCTION}({', '.join(name for name, _ in self.takes)})` that takes {listed}"

    @property
    def task(self) -> str:
        sentence = FORMS[self.gives][self.form][0].replace("{k}", str(self.form_constant))
        sentence = sentence.replace("{result}", self.result)
        return f"{self.intro} {sentence}".strip()


# For each form of the result: the sentence that requests it, and the expression that computes it from the result `r`.
FORMS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "natural": {
        "plain": ("Return {result}.", "r"),
        "remainder": ("Let r be {result}. Return the remainder when r is divided by {k}.", "r % {k}"),
        "text": ("Return {result}, as a string of decimal digits.", "str(r)"),
        "binary": ("Return {result}, in binary, as a string without a prefix.", 'format(r, "b")'),
        "pair": (
            "Let r be {result}. Return a list with the quotient (rounded down) and the remainder of r divided by {k}.",
            "[r // {k}, r % {k}]",
        ),
    },
    "number": {
        "plain": ("Return {result}.", "r"),
        "text": ("Return {result}, as a string.", "str(r)"),
        "shifted": ("Let r be {result}. Return {k} * r + 1.", "{k} * r + 1"),
        "square": ("Let r be {result}. Return a list of two numbers: r and the square of r.", "[r, r * r]"),
    },
    "numbers": {
        "plain": ("Return {result}, as a list.", "r"),
        "text": (
            "Return {result}, as a string in which the numbers are separated by commas without spaces.",
            '",".join(map(str, r))',
        ),
        "checksum": (
            "Let r be the list of {result}. Return the sum of all elements of r, each times its position (from 1).",
            "sum(i * x for i, x in enumerate(r, 1))",
        ),
        "reversed": ("Return {result}, as a list in reverse order.", "r[::-1]"),
    },
}

# Changes to the list `values` before the problem is solved: the sentence in the prompt, and the Python statement.
CONSTRAINTS: Mapping[str, tuple[str, str]] = {
    "skip": (
        "Ignore all elements of `values` that are divisible by {k}.",
        "values = [x for x in values if x % {k} != 0]",
    ),
    "distinct": (
        "If a number occurs several times in `values`, ignore all its occurrences except the first.",
        "values = list(dict.fromkeys(values))",
    ),
    "alternate": (
        "Ignore the elements of `values` at odd indices (the first element has index 0).",
        "values = values[::2]",
    ),
    "capped": ("Treat every element of `values` greater than {k} as {k}.", "values = [min(x, {k}) for x in values]"),
}


def add_constraint(rng: Random, problem: Algorithm) -> Algorithm:
    """Return the problem with a random change to its `values` list, or unchanged if it has no such list."""
    if problem.takes[0][0] != "values":
        return problem
    name = rng.choice(tuple(CONSTRAINTS))
    k = rng.randint(2, 5) if name == "skip" else rng.randint(6, 15)
    sentence, statement = (text.replace("{k}", str(k)) for text in CONSTRAINTS[name])
    return replace(
        problem,
        intro=f"{sentence} {problem.intro}".strip(),
        code=f"{statement}\n{dedent(problem.code).strip()}",
        choices={**problem.choices, "constraint": name, "constraint_k": k},
    )


def add_form(rng: Random, problem: Algorithm) -> Algorithm:
    """Return the problem with its result in another form."""
    form = rng.choice([form for form in FORMS[problem.gives] if form != "plain"])
    return replace(problem, form=form, form_constant=rng.randint(3, 99))


def integers(rng: Random, count: int, low: int, high: int) -> list[int]:
    return rng.choices(range(low, high + 1), k=count)


def letters(rng: Random, count: int, alphabet: str = "abc") -> str:
    return "".join(rng.choices(alphabet, k=count))


def list_sampler(shortest: int, longest: int, low: int, high: int, *more: tuple[int, int]) -> Sampler:
    """Return a function that samples a list of integers, followed by one integer for each range in `more`."""

    def sample(rng: Random) -> Args:
        values = integers(rng, rng.randint(shortest, longest), low, high)
        return (values, *(rng.randint(*bounds) for bounds in more))

    return sample


def random_edges(
    rng: Random, nodes: int, count: int, weights: Sequence[int] | None = None, *, directed: bool = True
) -> list[list[int]]:
    """Return different edges [a, b] or [a, b, weight] with a != b between nodes 0 to `nodes` - 1.

    Unless the edges are `directed`, there is at most one edge between two nodes.
    """
    if nodes < 2:
        return []
    pairs = {tuple(rng.sample(range(nodes), 2)) for _ in range(count)}
    if not directed:
        pairs = {pair for pair in pairs if pair[0] < pair[1] or pair[::-1] not in pairs}
    return [[*pair, *((rng.choice(weights),) if weights else ())] for pair in sorted(pairs, key=lambda _: rng.random())]

"""Programs out of parts: a chain of operations, a classic problem, or one behind the other."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

from palestra.envs.code.classics import ON_NUMBERS, OTHERS
from palestra.envs.code.operations import KINDS, Drawn, drawn
from palestra.envs.code.programs import COUNT, TYPES, Program, drawn_inputs, results

_TRIES = 200
_LONGEST = 1500  # characters of a result
_NAMES = {"numbers": "numbers", "words": "words", "text": "text", "number": "n"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """A program with its results; they differ enough to tell programs apart."""

    program: Program
    outputs: list[Any]


def sound_program(rng: Random, *, steps: int, classics: bool) -> Sound:
    """A program of `steps` operations, or around a classic where `classics` allows it.

    No constant passes: at least three results differ. No step is idle: without it, some result is another.
    """
    for _ in range(_TRIES):
        program, shorter = _draw(rng, steps, classics)
        outputs = results(program.source, program.inputs)
        shown = [repr(output) for output in outputs]
        if len(set(shown)) < 3 or max(map(len, shown)) > _LONGEST:
            continue
        if all(results(other.source, program.inputs) != outputs for other in shorter):
            return Sound(program=program, outputs=outputs)
    raise AssertionError(f"no sound program of {steps} steps in {_TRIES} tries")  # they come once in two


def _draw(rng: Random, steps: int, classics: bool) -> tuple[Program, list[Program]]:
    """A program, and what it is without each of its operations."""
    which = rng.randrange(3) if classics else 0
    if which == 0:
        return _chain(rng, steps)
    if which == 1:
        return _before(rng, rng.choice(ON_NUMBERS)(rng), max(1, steps - 1))
    return _after(rng, rng.choice(OTHERS)(rng), max(1, steps - 2))


def _chain(rng: Random, steps: int) -> tuple[Program, list[Program]]:
    kind = rng.choice(KINDS)
    parts = [drawn(rng, kind) for _ in range(steps)]
    ending = drawn(rng, kind, ending=True)
    inputs = tuple((value,) for value in drawn_inputs(rng, kind, COUNT))

    def made(chosen: list[Drawn]) -> Program:
        name = _NAMES[kind]
        lines = [f"value = {name}", *(line for part in chosen for line in part.code), *ending.code]
        listed = [f"{i}. {part.say}." for i, part in enumerate([*chosen, ending], 1)]
        task = "It does the following, in this order:\n" + "\n".join(listed)
        return Program(takes=((name, TYPES[kind]),), task=task, code=tuple(lines), inputs=inputs, gives=ending.gives)

    return made(parts), [made(parts[:i] + parts[i + 1 :]) for i in range(len(parts))]


def _before(rng: Random, program: Program, steps: int) -> tuple[Program, list[Program]]:
    """Operations on the list, then the classic."""
    parts = [drawn(rng, "numbers") for _ in range(steps)]

    def made(chosen: list[Drawn]) -> Program:
        listed = [f"{i}. {part.say}." for i, part in enumerate(chosen, 1)]
        task = (
            "First change the list as follows, in this order:\n" + "\n".join(listed) + "\nWith the new list, do this: "
        )
        lines = ["value = numbers", *(line for part in chosen for line in part.code), *program.code]
        takes = (("numbers", TYPES["numbers"]),)
        return dataclasses.replace(program, takes=takes, task=task + program.task, code=tuple(lines))

    return made(parts), [made(parts[:i] + parts[i + 1 :]) for i in range(len(parts))]


def _after(rng: Random, program: Program, steps: int) -> tuple[Program, list[Program]]:
    """The classic, then operations on its result."""
    parts = [drawn(rng, program.gives, signed=True) for _ in range(steps)]
    names = ", ".join(name for name, _ in program.takes)

    def made(chosen: list[Drawn]) -> Program:
        listed = [f"{i}. {part.say}." for i, part in enumerate(chosen, 1)]
        task = f"{program.task}\nBefore it is returned, change this result as follows, in this order:\n"
        inner = [f"def first({names}):", *(f"    {line}" for line in program.code)]
        lines = [
            *inner,
            "",
            f"value = first({names})",
            *(line for part in chosen for line in part.code),
            "return value",
        ]
        return dataclasses.replace(program, task=task + "\n".join(listed), code=tuple(lines))

    return made(parts), [made(parts[:i] + parts[i + 1 :]) for i in range(len(parts))]

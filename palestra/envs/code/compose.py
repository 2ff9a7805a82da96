"""Generate reference programs from sequences of operations, optionally combined with a classic problem."""

from __future__ import annotations

import dataclasses
from random import Random
from typing import Any

from palestra.envs.code.boundaries import Hints, sample_value
from palestra.envs.code.classics import ON_NUMBERS, OTHERS
from palestra.envs.code.operations import KINDS, DrawnOperation, draw_operation
from palestra.envs.code.programs import COUNT, TYPES, Args, Program, draw_inputs, program_structure, run_program

_MAX_ATTEMPTS = 200
_MAX_RESULT_LENGTH = 1500  # characters
_NAMES = {"numbers": "numbers", "words": "words", "text": "text", "number": "n"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedProgram:
    """A reference program and its outputs, which vary enough to detect wrong programs."""

    program: Program
    outputs: list[Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A random program that has not been run yet."""

    program: Program
    shorter: list[Program]  # variants of the program that each omit one operation

    @property
    def structure(self) -> str:
        return program_structure(self.program.source)


def generate_program(rng: Random, *, steps: int, classics: bool) -> GeneratedProgram:
    """Sample drafts until one is a valid program."""
    for _ in range(_MAX_ATTEMPTS):
        generated = run_draft(draw_program(rng, steps=steps, classics=classics))
        if generated is not None:
            return generated
    # About half of the attempts succeed, so this is never reached in practice.
    raise AssertionError(f"no valid program of {steps} steps in {_MAX_ATTEMPTS} attempts")


def draw_program(rng: Random, *, steps: int, classics: bool) -> Draft:
    """Sample a program with `steps` operations. With `classics`, it may be combined with a classic problem."""
    which = rng.randrange(3) if classics else 0
    if which == 0:
        program, shorter = _chain(rng, steps)
    elif which == 1:
        program, shorter = _before(rng, rng.choice(ON_NUMBERS)(rng), max(1, steps - 1))
    else:
        program, shorter = _after(rng, rng.choice(OTHERS)(rng), max(1, steps - 2))
    return Draft(program=program, shorter=shorter)


def run_draft(draft: Draft) -> GeneratedProgram | None:
    """Run a program on its inputs; return None if wrong programs would be hard to detect.

    The outputs must have at least three different values, so that a program that returns a constant fails. Omitting any
    of the operations must change at least one output.
    """
    program = draft.program
    outputs = run_program(program.source, program.inputs)
    texts = [repr(output) for output in outputs]
    if len(set(texts)) < 3 or max(map(len, texts)) > _MAX_RESULT_LENGTH:
        return None
    if any(run_program(other.source, program.inputs) == outputs for other in draft.shorter):
        return None
    return GeneratedProgram(program=program, outputs=outputs)


def _chain(rng: Random, steps: int) -> tuple[Program, list[Program]]:
    kind = rng.choice(KINDS)
    parts = [draw_operation(rng, kind) for _ in range(steps)]
    ending = draw_operation(rng, kind, ending=True)
    inputs = tuple((value,) for value in draw_inputs(rng, kind, COUNT))

    def sample(rng: Random, hints: Hints) -> Args:
        return (sample_value(rng, kind, hints),)

    def build(chosen: list[DrawnOperation]) -> Program:
        name = _NAMES[kind]
        lines = [f"value = {name}", *(line for part in chosen for line in part.code), *ending.code]
        listed = [f"{i}. {part.instruction}." for i, part in enumerate([*chosen, ending], 1)]
        task = "It performs these steps in order:\n" + "\n".join(listed)
        takes = ((name, TYPES[kind]),)
        return Program(takes=takes, task=task, code=tuple(lines), inputs=inputs, gives=ending.gives, sample=sample)

    return build(parts), [build(parts[:i] + parts[i + 1 :]) for i in range(len(parts))]


def _before(rng: Random, program: Program, steps: int) -> tuple[Program, list[Program]]:
    """Return a program that applies operations to its input before it solves a classic problem, and its variants."""
    parts = [draw_operation(rng, "numbers") for _ in range(steps)]

    def build(chosen: list[DrawnOperation]) -> Program:
        listed = [f"{i}. {part.instruction}." for i, part in enumerate(chosen, 1)]
        task = (
            "First transform the list with these steps in order:\n"
            + "\n".join(listed)
            + "\nThen do this with the result: "
        )
        lines = ["value = numbers", *(line for part in chosen for line in part.code), *program.code]
        takes = (("numbers", TYPES["numbers"]),)
        return dataclasses.replace(program, takes=takes, task=task + program.task, code=tuple(lines))

    return build(parts), [build(parts[:i] + parts[i + 1 :]) for i in range(len(parts))]


def _after(rng: Random, program: Program, steps: int) -> tuple[Program, list[Program]]:
    """Return a program that applies operations to the result of a classic problem, and its variants."""
    parts = [draw_operation(rng, program.gives, signed=True) for _ in range(steps)]
    names = ", ".join(name for name, _ in program.takes)

    def build(chosen: list[DrawnOperation]) -> Program:
        listed = [f"{i}. {part.instruction}." for i, part in enumerate(chosen, 1)]
        task = f"{program.task}\nBefore returning this result, transform it with these steps in order:\n"
        inner = [f"def first({names}):", *(f"    {line}" for line in program.code)]
        lines = [
            *inner,
            "",
            f"value = first({names})",
            *(line for part in chosen for line in part.code),
            "return value",
        ]
        return dataclasses.replace(program, task=task + "\n".join(listed), code=tuple(lines))

    return build(parts), [build(parts[:i] + parts[i + 1 :]) for i in range(len(parts))]

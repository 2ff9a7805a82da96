"""Repair: a program with bugs in it, what it should do, and a case in which it fails."""

from __future__ import annotations

import ast
from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.code.base import CodeTask
from palestra.envs.code.bugs import Outcome, OutOfFuel, Place, apart, broken, careful, parsed, places
from palestra.envs.code.compose import Sound, sound_program
from palestra.envs.code.programs import FUNCTION, call_shown
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_flag, check_whole
from palestra.grading import CallTest
from palestra.parsing import fenced


class Repair(CodeTask):
    """Find and repair `bugs` bugs in a program of `steps` operations, with `classics` also in well-known problems.

    Bugs are wrong comparisons and operators, constants off by one, `and` for `or`, negated conditions, lost lines and
    branches, early returns, `max` for `min`. The program always comes to an end, and it fails at least one hidden test
    beside the one that is shown; with only one of its bugs left it would still fail one. Every level has millions of
    different items.
    """

    levels: ClassVar[Levels] = {
        "easy": {"bugs": 1, "steps": 2, "classics": False},
        "medium": {"bugs": 1, "steps": 4, "classics": True},
        "hard": {"bugs": 3, "steps": 6, "classics": True},
    }

    def __init__(
        self,
        *,
        level: str = "easy",
        bugs: int | None = None,
        steps: int | None = None,
        classics: bool | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        super().__init__(level, {"bugs": bugs, "steps": steps, "classics": classics}, **options)

    @classmethod
    def check(cls, *, bugs: Any, steps: Any, classics: Any) -> None:
        check_whole("bugs", bugs, 1, 3)
        check_whole("steps", steps, 1, 8)
        check_flag("classics", classics)

    @classmethod
    def generate(cls, rng: Random, *, bugs: int, steps: int, classics: bool) -> Item:
        while True:
            sound = sound_program(rng, steps=steps, classics=classics)
            wrong = _with_bugs(rng, sound, bugs)
            if wrong is not None:
                return _item(rng, sound, *wrong)

    def random_answer(self) -> str:
        """The program as it was given: it fails."""
        found = self.read(str(self.item.question))
        assert found is not None  # noqa: S101  # every question shows one
        return found


def _item(rng: Random, sound: Sound, chosen: list[Place], seed: int, outcomes: list[Outcome]) -> Item:
    program = sound.program
    cases = list(zip(program.inputs, sound.outputs, outcomes, strict=True))
    failing = [case for case in cases if _differs(case[2], case[1])]
    args, expected, outcome = rng.choice(sorted(failing, key=lambda case: len(repr(case[0])))[:4])
    several = "a bug" if len(chosen) == 1 else f"{len(chosen)} bugs"
    wrong = ast.unparse(broken(program.source, chosen, seed))
    question = (
        f"This program has {several} in it:\n\n{fenced(wrong)}\n\n"
        f"It should define {program.heading}. {program.task}\n\n"
        f"But {call_shown(args)} {outcome.shown()}, and should return {expected!r}. Repair the program."
    )
    tests = tuple(CallTest(function=FUNCTION, args=args, expected=(output,)) for args, output, _ in cases)
    return Item(question=question, answer=ast.unparse(parsed(program.source)), gold=tests, key="repair")


def _with_bugs(rng: Random, sound: Sound, bugs: int) -> tuple[list[Place], int, list[Outcome]] | None:
    """That many bugs, each of which alone makes a difference, and what the program does with all; None: not found."""
    tree = parsed(sound.program.source)
    every = places(tree)
    rng.shuffle(every)
    seed = rng.getrandbits(32)
    chosen: list[Place] = []
    outcomes: list[Outcome] | None = None
    for place in every:
        more = [*chosen, place]
        if not apart(tree, more) or _outcomes(sound, [place], seed) is None:
            continue
        outcomes = _outcomes(sound, more, seed)
        if outcomes is None:  # they hide each other, or it never ends
            continue
        chosen = more
        if len(chosen) == bugs:
            return chosen, seed, outcomes
    return None


def _outcomes(sound: Sound, chosen: list[Place], seed: int) -> list[Outcome] | None:
    """What the program with these bugs does, where it always ends and is wrong at least twice."""
    run = careful(broken(sound.program.source, chosen, seed))
    try:
        outcomes = [run(args) for args in sound.program.inputs]
    except OutOfFuel:
        return None
    differing = sum(_differs(outcome, output) for outcome, output in zip(outcomes, sound.outputs, strict=True))
    return outcomes if differing >= 2 else None


def _differs(outcome: Outcome, expected: Any) -> bool:
    return bool(outcome.error) or outcome.value != expected

"""Environment in which the agent fixes the bugs in a program, given its description and a failing case."""

from __future__ import annotations

import ast
from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.code.base import CodeTask
from palestra.envs.code.boundaries import hidden_tests
from palestra.envs.code.bugs import (
    BugSite,
    LimitExceeded,
    Outcome,
    are_independent,
    compile_limited,
    find_bug_sites,
    insert_bugs,
    parse,
)
from palestra.envs.code.compose import Draft, GeneratedProgram, draw_program, run_draft
from palestra.envs.code.programs import format_call
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_bool, check_int
from palestra.parsing import fenced


class Repair(CodeTask):
    """Find and fix `bugs` bugs in a program with `steps` operations or, with `classics`, in a well-known problem.

    Bugs are wrong comparisons and operators, off-by-one constants, `and` instead of `or`, negated conditions, missing
    lines and branches, early returns, and `max` instead of `min`. The program always terminates, and it fails at least
    one hidden test besides the one in the prompt. Each bug alone makes at least two tests fail. Every level has
    millions of different items.
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
        check_int("bugs", bugs, 1, 3)
        check_int("steps", steps, 1, 8)
        check_bool("classics", classics)

    @classmethod
    def draw_program(cls, rng: Random, *, bugs: int, steps: int, classics: bool) -> Draft:  # noqa: ARG003
        return draw_program(rng, steps=steps, classics=classics)

    @classmethod
    def make_item(cls, rng: Random, draft: Draft, *, bugs: int, **settings: Any) -> Item | None:  # noqa: ARG003
        generated = run_draft(draft)
        buggy = None if generated is None else _add_bugs(rng, generated, bugs)
        return None if generated is None or buggy is None else _make_item(rng, generated, *buggy)

    def random_answer(self) -> str:
        """Return the program from the prompt with another random bug, which rarely repairs it."""
        program = self.read(str(self.item.question))
        assert program is not None  # noqa: S101  # every question contains a program
        sites = find_bug_sites(parse(program))
        if not sites:
            return program
        return ast.unparse(insert_bugs(program, [self.player_rng.choice(sites)], self.player_rng.getrandbits(32)))


def _make_item(
    rng: Random, generated: GeneratedProgram, sites: list[BugSite], seed: int, outcomes: list[Outcome]
) -> Item:
    program = generated.program
    cases = list(zip(program.inputs, generated.outputs, outcomes, strict=True))
    failing = [case for case in cases if _differs(case[2], case[1])]
    args, expected, outcome = rng.choice(sorted(failing, key=lambda case: len(repr(case[0])))[:4])
    count = "a bug" if len(sites) == 1 else f"{len(sites)} bugs"
    buggy = ast.unparse(insert_bugs(program.source, sites, seed))
    question = (
        f"This program contains {count}:\n\n{fenced(buggy)}\n\n"
        f"It should define {program.heading}. {program.task}\n\n"
        f"However, {format_call(args)} {outcome.describe()}, but should return {expected!r}. Fix the program."
    )
    tests = hidden_tests(rng, program, generated.outputs)
    return Item(question=question, answer=ast.unparse(parse(program.source)), gold=tests, key="repair")


def _add_bugs(rng: Random, generated: GeneratedProgram, bugs: int) -> tuple[list[BugSite], int, list[Outcome]] | None:
    """Sample bugs that each change a result. Return their sites, the seed and the outcomes, or None on failure."""
    tree = parse(generated.program.source)
    candidates = find_bug_sites(tree)
    rng.shuffle(candidates)
    seed = rng.getrandbits(32)
    sites: list[BugSite] = []
    outcomes: list[Outcome] | None = None
    for site in candidates:
        extended = [*sites, site]
        if not are_independent(tree, extended) or _outcomes(generated, [site], seed) is None:
            continue
        outcomes = _outcomes(generated, extended, seed)
        if outcomes is None:  # the bugs mask each other, or the program does not terminate
            continue
        sites = extended
        if len(sites) == bugs:
            return sites, seed, outcomes
    return None


def _outcomes(generated: GeneratedProgram, sites: list[BugSite], seed: int) -> list[Outcome] | None:
    """Return the outcomes with these bugs, or None if the program exceeds a limit or fails fewer than two tests."""
    run = compile_limited(insert_bugs(generated.program.source, sites, seed))
    try:
        outcomes = [run(args) for args in generated.program.inputs]
    except LimitExceeded:
        return None
    differing = sum(_differs(outcome, output) for outcome, output in zip(outcomes, generated.outputs, strict=True))
    return outcomes if differing >= 2 else None


def _differs(outcome: Outcome, expected: Any) -> bool:
    return bool(outcome.error) or outcome.value != expected

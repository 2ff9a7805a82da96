"""Environment in which the agent writes a small program from its description and examples."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.code.base import CodeTask
from palestra.envs.code.boundaries import hidden_tests
from palestra.envs.code.compose import Draft, draw_program, run_draft
from palestra.envs.code.programs import FUNCTION, format_call
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_bool, check_int

EXAMPLES = 3


class Puzzles(CodeTask):
    """Write a function that performs a sequence of `steps` operations on numbers, lists or strings.

    With `classics`, some tasks combine a well-known problem (windows, coins, grids, automata, ...) with operations
    before or after it. The first hidden tests are edge cases (empty, one element, all equal), and many others are
    close to the program's constants, where its result changes. A program that always returns the same value, omits
    an operation or compares with the wrong constant fails. The easy level has about fifty thousand different
    problems and the other levels have millions, not counting the same problem with different examples.
    """

    levels: ClassVar[Levels] = {
        "easy": {"steps": 2, "classics": False},
        "medium": {"steps": 4, "classics": True},
        "hard": {"steps": 6, "classics": True},
    }

    def __init__(
        self,
        *,
        level: str = "easy",
        steps: int | None = None,
        classics: bool | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        super().__init__(level, {"steps": steps, "classics": classics}, **options)

    @classmethod
    def check(cls, *, steps: Any, classics: Any) -> None:
        check_int("steps", steps, 1, 8)
        check_bool("classics", classics)

    @classmethod
    def draw_program(cls, rng: Random, *, steps: int, classics: bool) -> Draft:
        return draw_program(rng, steps=steps, classics=classics)

    @classmethod
    def make_item(cls, rng: Random, draft: Draft, **settings: Any) -> Item | None:  # noqa: ARG003
        generated = run_draft(draft)
        if generated is None:
            return None
        program = generated.program
        cases = list(zip(program.inputs, generated.outputs, strict=True))
        lines = [f"{format_call(args)} returns {output!r}" for args, output in choose_examples(rng, cases)]
        question = f"Write {program.heading}. {program.task}\n\nExamples:\n" + "\n".join(lines)
        tests = hidden_tests(rng, program, generated.outputs)
        return Item(question=question, answer=program.source, gold=tests, key="program")

    def random_answer(self) -> str:
        values: tuple[Any, ...] = (0, 1, "", [], self.player_rng.randint(-9, 99))
        value = self.player_rng.choice(values)
        return f"def {FUNCTION}(*args):\n    return {value!r}"


def choose_examples(rng: Random, cases: list[tuple[Any, Any]], count: int = EXAMPLES) -> list[tuple[Any, Any]]:
    """Choose cases with different results for the prompt. The largest inputs are used only if necessary."""
    order = sorted(range(len(cases)), key=lambda i: len(repr(cases[i][0])))
    small, large = order[: len(order) * 3 // 4], order[len(order) * 3 // 4 :]
    rng.shuffle(small)
    chosen: dict[str, int] = {}
    for i in small + large:
        if len(chosen) < count:
            chosen.setdefault(repr(cases[i][1]), i)
    return [cases[i] for i in sorted(chosen.values())]

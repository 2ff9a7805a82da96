"""Base class for generated tasks whose answer is a program, graded by hidden tests in the sandbox."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from random import Random
from typing import Any

from palestra.envs.code.programs import FUNCTION
from palestra.envs.tasks.base import Item
from palestra.envs.tasks.generated import GeneratedTask
from palestra.grading import CallTest, Grade, grade_code
from palestra.parsing import fenced, read_program

GROUPS = 2  # number of processes that run the hidden tests; starting a process takes longer than running a test
_BATCH_FUNCTION = f"palestra_{FUNCTION}_batch"
_BATCH_SOURCE = f"\n\ndef {_BATCH_FUNCTION}(calls):\n    return [{FUNCTION}(*args) for args in calls]\n"


class CodeTask(GeneratedTask):
    """Base class for generated programming tasks.

    An item's `gold` field contains its hidden tests, and its `answer` field contains a program that passes them. Tasks
    are identified by the structure of their program, so a program in the test split never differs from a program in the
    training split only in its constants or variable names.
    """

    answer_name = "program"
    fenced_answers = True
    inline = False  # grading waits for the sandbox for several milliseconds

    @classmethod
    @abstractmethod
    def draw_program(cls, rng: Random, *args: Any, **settings: Any) -> Any:
        """Return a random draft of a program; its `structure` property identifies the task."""

    @classmethod
    @abstractmethod
    def make_item(cls, rng: Random, draft: Any, *args: Any, **settings: Any) -> Item | None:
        """Return the item for a draft, or None if the draft is not a valid task."""

    @classmethod
    def generate(cls, rng: Random, **settings: Any) -> Item:
        while (item := cls.make_item(rng, cls.draw_program(rng, **settings), **settings)) is None:
            pass
        return item

    def select(self, options: dict[str, Any]) -> Item:
        """Return an item from `split`; only drafts in this split are run."""
        settings = self.settings(self.draw_level())
        while True:
            draft = self.sample_task(
                lambda: self.draw_program(self.rng, **settings), lambda draft: draft.structure, chosen=bool(options)
            )
            item = self.make_item(self.rng, draft, **settings)
            if item is not None:
                return item

    def read(self, reply: str) -> str | None:
        return read_program(reply, (FUNCTION,))

    def write(self, answer: str) -> str:
        return fenced(answer)

    def format_note(self) -> str:
        return (
            f"Write your final program in Python, as one fenced block that defines `{FUNCTION}`, for example:\n"
            f"{self.example_action()}\n"
            f"You may think first; only the last fenced block that defines `{FUNCTION}` counts. The function is called "
            "with hidden inputs, several times in one process, and must return the correct result for all of them."
        )

    def grade(self, answer: str) -> Grade:
        if FUNCTION not in answer:  # without this function, no test can pass, so do not start a process
            why = f"the program does not define a function {FUNCTION}"
            return Grade(correct=False, score=0.0, why=why, hint=f"It does not define a function `{FUNCTION}`.")
        from palestra.tools.sandbox import Limits  # imported here because generating tasks does not need the sandbox

        return grade_code(answer + _BATCH_SOURCE, group_tests(self.item.gold), limits=Limits(wall=10.0, cpu=1.0))

    def example_answer(self) -> str:
        return f"def {FUNCTION}(*args):\n    return None"


def group_tests(tests: Sequence[CallTest]) -> list[CallTest]:
    """Distribute the calls over GROUPS tests, with one process per test."""
    groups = [tests[i::GROUPS] for i in range(GROUPS)]
    return [
        CallTest(
            function=_BATCH_FUNCTION,
            args=([list(test.args) for test in group],),
            expected=([test.expected[0] for test in group],),
        )
        for group in groups
    ]

"""Base class of generated tasks whose answer is a program, graded by hidden tests in the sandbox."""

from __future__ import annotations

from palestra.envs.code.programs import FUNCTION
from palestra.envs.tasks.generated import GeneratedTask
from palestra.grading import CallTest, Grade, grade_code
from palestra.parsing import fenced, read_program

GROUPS = 2  # number of processes that run the hidden tests; starting a process takes longer than running a test
_BATCH_FUNCTION = f"palestra_{FUNCTION}_batch"
_BATCH_SOURCE = f"\n\ndef {_BATCH_FUNCTION}(calls):\n    return [{FUNCTION}(*args) for args in calls]\n"


class CodeTask(GeneratedTask):
    """Base class of generated programming tasks.

    The field `gold` of an item contains its hidden tests, and `answer` is a program that passes them.
    """

    answer_name = "program"
    fenced_answers = True
    inline = False  # grading waits for the sandbox for several milliseconds

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


def group_tests(tests: tuple[CallTest, ...]) -> list[CallTest]:
    """Distribute the calls over GROUPS tests, each of which runs in one process."""
    groups = [tests[i::GROUPS] for i in range(GROUPS)]
    return [
        CallTest(
            function=_BATCH_FUNCTION,
            args=([list(test.args) for test in group],),
            expected=([test.expected[0] for test in group],),
        )
        for group in groups
    ]

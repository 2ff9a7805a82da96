"""CodeTask: generated questions that are answered with a program, which hidden tests judge in the sandbox."""

from __future__ import annotations

from palestra.envs.code.programs import FUNCTION
from palestra.envs.tasks.generated import GeneratedTask
from palestra.grading import CallTest, Grade, grade_code
from palestra.parsing import fenced, last_code

GROUPS = 2  # processes that judge a program, each by its share of the hidden calls: a process costs more than the calls
_EACH = f"palestra_{FUNCTION}_each"
_CALLS = f"\n\ndef {_EACH}(calls):\n    return [{FUNCTION}(*args) for args in calls]\n"


class CodeTask(GeneratedTask):
    """The item's gold is its hidden tests, its answer a program that passes them."""

    answer_name = "program"
    fenced_answers = True
    inline = False  # the sandbox takes milliseconds

    def read(self, reply: str) -> str | None:
        return last_code(reply)

    def write(self, answer: str) -> str:
        return fenced(answer)

    def format_note(self) -> str:
        return (
            f"Write your final program in Python, as one fenced block that defines `{FUNCTION}`, for example:\n"
            f"{self.example_action()}\n"
            "You may think first; only the last fenced block of your reply counts. The function is called with inputs "
            "you have not seen, several times in one process; what it returns must be right for all of them."
        )

    def grade(self, answer: str) -> Grade:
        if FUNCTION not in answer:  # nothing to call: not worth a process
            why = f"the program defines no function {FUNCTION}"
            return Grade(correct=False, score=0.0, why=why, hint=f"It defines no function `{FUNCTION}`.")
        from palestra.tools.sandbox import Limits  # where a program is run, not where one is made up

        return grade_code(answer + _CALLS, grouped(self.item.gold), limits=Limits(wall=10.0, cpu=1.0))

    def example_answer(self) -> str:
        return f"def {FUNCTION}(*args):\n    return None"


def grouped(tests: tuple[CallTest, ...]) -> list[CallTest]:
    """The same calls in GROUPS tests."""
    groups = [tests[i::GROUPS] for i in range(GROUPS)]
    return [
        CallTest(
            function=_EACH,
            args=([list(test.args) for test in group],),
            expected=([test.expected[0] for test in group],),
        )
        for group in groups
    ]

"""Programming problems of a data set, judged by the tests of their rows in the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from palestra.envs.tasks.base import Item
from palestra.envs.tasks.data import DataOptions, DataTask, cell, text_in
from palestra.errors import BadValue
from palestra.grading import Grade, grade_code, read_tests
from palestra.parsing import fenced, last_code
from palestra.tools.sandbox import Limits


class CodeProblems(DataTask):
    """Rows with a problem and hidden tests, in any form `palestra.grading.read_tests` knows.

    Each test has `seconds` of processor time. `max_tests` runs the longest that many of them; `stop_early` begins no
    more once one has failed, which is faster, and says right or wrong without a share of passed tests. `function` is
    the column that names what the tests call, `starter` one with code to begin from. An expert exists where `solution`
    names a column of programs.
    """

    answer_name = "program"
    fenced_answers = True
    inline = False

    def __init__(
        self,
        *,
        tests: str = "tests",
        solution: str | None = None,
        function: str | None = None,
        starter: str | None = None,
        max_tests: int | None = 12,
        stop_early: bool = False,
        seconds: float = 4.0,
        **options: Unpack[DataOptions],
    ) -> None:
        super().__init__(**options)
        if max_tests is not None and (isinstance(max_tests, bool) or max_tests < 1):
            raise BadValue(f"max_tests is a whole number from 1 up, or None for all, got {max_tests!r}")
        self.tests = tests
        self.solution = solution
        self.function = function
        self.starter = starter
        self.max_tests = max_tests
        self.stop_early = stop_early
        if not seconds > 0:
            raise BadValue(f"seconds of a test are above 0, got {seconds!r}")
        self.seconds = float(seconds)
        columns = {"tests": tests, "solution": solution, "function": function, "starter": starter}
        for keyword, column in columns.items():
            if column is not None:
                self.rows.need(column, keyword)

    def item_of(self, row: Mapping[str, Any], key: str) -> Item:
        function = None if self.function is None else cell(row, self.function)
        try:
            tests = read_tests(_plain(cell(row, self.tests)), function=function or None)
        except BadValue as err:
            raise BadValue(f"{key}: {err}") from err
        text = text_in(cell(row, self.question))
        starter = None if self.starter is None else cell(row, self.starter)
        if starter:
            text = f"{text}\n\nBegin from:\n{fenced(str(starter))}"
        solution = "" if self.solution is None else cell(row, self.solution)
        if isinstance(solution, list):
            solution = solution[0] if solution else ""
        return Item(question=text, answer=str(solution or ""), gold=tests, key=key)

    def read(self, reply: str) -> str | None:
        return last_code(reply)

    def write(self, answer: str) -> str:
        return fenced(answer)

    def format_note(self) -> str:
        return (
            "Write your final program in Python, as one fenced block:\n"
            f"{self.example_action()}\n"
            "A program that is not asked for a function reads standard input and prints to standard output. "
            "You may think first; only the last fenced block of your reply counts."
        )

    def grade(self, answer: str) -> Grade:
        limits = Limits(cpu=self.seconds, wall=2.5 * self.seconds)  # a busy machine is no fault of the program
        grade = grade_code(answer, self.item.gold, limits=limits, max_tests=self.max_tests, stop_early=self.stop_early)
        if self.stop_early:  # how many were begun is a matter of speed, and no episode may depend on that
            return Grade(correct=grade.correct, score=float(grade.correct), why=grade.why)
        return grade

    def expert_action(self) -> str | None:  # without a column of solutions there is none
        return self.write(self.item.answer) if self.item.answer else None

    def random_answer(self) -> str:
        return f"print({self.player_rng.randint(0, 9)})"

    def example_answer(self) -> str:
        return "print(input())"


def _plain(tests: Any) -> Any:
    """Arrow has no dictionaries of any shape: fields that a row does not have come as None."""
    if isinstance(tests, Mapping):
        return {name: _plain(value) for name, value in tests.items() if value is not None}
    if isinstance(tests, list):
        return [_plain(value) for value in tests]
    return tests

"""Programming problems from a dataset, graded in the sandbox by the tests in their rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Unpack

from palestra.envs.tasks.base import Item
from palestra.envs.tasks.cells import cell_text, get_cell
from palestra.envs.tasks.data import DataOptions, DataTask
from palestra.errors import BadValue
from palestra.grading import AssertTest, CallTest, Grade, grade_code, read_tests
from palestra.parsing import fenced, read_program
from palestra.tools.sandbox import Limits

_TESTED = re.compile(r"(?<![\w.])([A-Za-z_]\w*)[ \t]*\(")


class CodeProblems(DataTask):
    """Programming problems with hidden tests, in any format that `palestra.grading.read_tests` accepts.

    Each test may use `seconds` of CPU time. If there are more than `max_tests` tests, only the longest ones are run.
    With `stop_early`, no further tests are started after a failure. This is faster, but the fraction of passed tests is
    not reported. `function` is the column with the name of the function to call, and `starter` is the column with
    starter code. An expert is available only if `solution` names a column with correct programs.
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
            raise BadValue(f"max_tests must be a positive integer, or None to run all tests; got {max_tests!r}")
        self.tests = tests
        self.solution = solution
        self.function = function
        self.starter = starter
        self.max_tests = max_tests
        self.stop_early = stop_early
        if not seconds > 0:
            raise BadValue(f"seconds must be positive, got {seconds!r}")
        self.seconds = float(seconds)
        columns = {"tests": tests, "solution": solution, "function": function, "starter": starter}
        for keyword, column in columns.items():
            if column is not None:
                self.rows.require_column(column, keyword)

    def make_item(self, row: Mapping[str, Any], key: str) -> Item:
        function = None if self.function is None else get_cell(row, self.function)
        try:
            tests = read_tests(_without_none(get_cell(row, self.tests)), function=function or None)
        except BadValue as err:
            raise BadValue(f"{key}: {err}") from err
        text = cell_text(get_cell(row, self.question))
        starter = None if self.starter is None else get_cell(row, self.starter)
        if starter:
            text = f"{text}\n\nStart from this code:\n{fenced(str(starter))}"
        solution = "" if self.solution is None else get_cell(row, self.solution)
        if isinstance(solution, list):
            solution = solution[0] if solution else ""
        return Item(question=text, answer=str(solution or ""), gold=tests, key=key)

    def read(self, reply: str) -> str | None:
        return read_program(reply, self._names())

    def _names(self) -> set[str]:
        """Return the names of the functions that the tests call; empty if the program reads standard input."""
        names: set[str] = set()
        for test in self.item.gold:
            if isinstance(test, CallTest):
                names.add(test.function)
            elif isinstance(test, AssertTest):
                names.update(_TESTED.findall(test.source))
        return names

    def write(self, answer: str) -> str:
        return fenced(answer)

    def format_note(self) -> str:
        return (
            "Write your final program in Python, as one fenced block:\n"
            f"{self.example_action()}\n"
            "Unless the problem asks for a function, the program reads standard input and prints to standard output. "
            "You may think first; only the last program of your reply counts."
        )

    def grade(self, answer: str) -> Grade:
        # The wall-clock limit is generous because the machine may be busy.
        limits = Limits(cpu=self.seconds, wall=2.5 * self.seconds)
        grade = grade_code(answer, self.item.gold, limits=limits, max_tests=self.max_tests, stop_early=self.stop_early)
        if self.stop_early:  # the number of tests that ran depends on timing, so the grade must not contain it
            return Grade(correct=grade.correct, score=float(grade.correct), why=grade.why)
        return grade

    def expert_action(self) -> str | None:  # None if the row has no solution
        return self.write(self.item.answer) if self.item.answer else None

    def random_answer(self) -> str:
        return f"print({self.player_rng.randint(0, 9)})"

    def example_answer(self) -> str:
        return "print(input())"


def _without_none(tests: Any) -> Any:
    """Drop None values, which Arrow inserts for fields that are missing in a row."""
    if isinstance(tests, Mapping):
        return {name: _without_none(value) for name, value in tests.items() if value is not None}
    if isinstance(tests, list):
        return [_without_none(value) for value in tests]
    return tests

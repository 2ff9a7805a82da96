"""Questions from a dataset, with one or several accepted answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from palestra.envs.tasks.base import Item
from palestra.envs.tasks.cells import cell_text, cell_texts, get_cell
from palestra.envs.tasks.data import DataOptions, DataTask
from palestra.errors import BadValue
from palestra.grading import Grade, Grader, get_grader, grade


class Questions(DataTask):
    r"""Questions from a dataset; the accepted answers are text, a list, or an object with aliases as in TriviaQA.

    An answer is correct if it matches an accepted answer after the usual normalization, or if its F1 score against an
    accepted answer is at least `threshold`. `grader` replaces this comparison: it is the name of a registered grader,
    `module:function`, or a function.
    """

    def __init__(
        self,
        *,
        answer: str = "answer",
        threshold: float | None = None,
        grader: str | Grader = "qa",
        **options: Unpack[DataOptions],
    ) -> None:
        super().__init__(**options)
        if threshold is not None and not 0 < threshold <= 1:
            raise BadValue(f"threshold must be an F1 score in (0, 1] or None, got {threshold!r}")
        self.answer = answer
        self.threshold = threshold
        self.grader = get_grader(grader) if isinstance(grader, str) else grader
        self.grader_options = {} if threshold is None else {"threshold": threshold}
        self.rows.require_column(answer, "answer")

    def make_item(self, row: Mapping[str, Any], key: str) -> Item:
        answers = cell_texts(get_cell(row, self.answer))
        if not answers:
            raise BadValue(f"{key} has no answer in the column {self.answer!r}")
        return Item(question=cell_text(get_cell(row, self.question)), answer=answers[0], gold=answers, key=key)

    def grade(self, answer: str) -> Grade:
        return grade(self.grader, answer, self.item.gold, **self.grader_options)

    def random_answer(self) -> str:
        answers = cell_texts(get_cell(self.random_row(), self.answer))
        return answers[0] if answers else "nobody"

    def example_answer(self) -> str:
        return "Marie Curie"

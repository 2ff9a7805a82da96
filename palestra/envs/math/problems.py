"""Math problems from a dataset, with optional images, graded by the value of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from palestra.envs.tasks.base import Item
from palestra.envs.tasks.cells import cell_text, cell_texts, get_cell
from palestra.envs.tasks.data import DataOptions, DataTask
from palestra.envs.tasks.images import insert_images, load_images
from palestra.errors import BadValue
from palestra.grading import Grade, Grader, get_grader, grade
from palestra.parsing import last_boxed


class MathProblems(DataTask):
    r"""Math problems read from a dataset.

    The answer in a row is a value, a list of accepted values, or a solution that ends with `#### 42` (as in GSM8K) or
    with `\boxed{42}`. `grader` is the name of a registered grader, `module:function`, or a function.
    """

    inline = False  # grading an answer that is not a plain number can be slow

    def __init__(
        self,
        *,
        answer: str = "answer",
        images: str | None = None,
        grader: str | Grader = "math",
        **options: Unpack[DataOptions],
    ) -> None:
        self.images = images  # must precede super().__init__, which calls `task_columns`
        super().__init__(**options)
        self.answer = answer
        self.grader = get_grader(grader) if isinstance(grader, str) else grader
        self.rows.require_column(answer, "answer")
        if images is not None:
            self.rows.require_column(images, "images")

    def task_columns(self) -> tuple[str, ...]:
        return (self.question,) if self.images is None else (self.question, self.images)

    def make_item(self, row: Mapping[str, Any], key: str) -> Item:
        answers = self._answers(row)
        if not answers:
            raise BadValue(f"{key} has no answer in the column {self.answer!r}")
        text = cell_text(get_cell(row, self.question))
        images = [] if self.images is None else load_images(get_cell(row, self.images), self.rows.folder)
        return Item(question=insert_images(text, images), answer=answers[0], gold=answers, key=key)

    def _answers(self, row: Mapping[str, Any]) -> list[str]:
        return [answer for text in cell_texts(get_cell(row, self.answer)) if (answer := final_answer(text))]

    def grade(self, answer: str) -> Grade:
        return grade(self.grader, answer, self.item.gold)

    def random_answer(self) -> str:
        answers = self._answers(self.random_row())
        return answers[0] if answers else "0"

    def example_answer(self) -> str:
        return "42"


def final_answer(text: str) -> str:
    r"""Return the text after the last `####`, else the content of the last `\boxed{}`, else the whole text."""
    _, marker, after = text.rpartition("####")
    if marker:
        return after.strip()
    boxed = last_boxed(text) if "\\boxed{" in text else None
    return (text if boxed is None else boxed).strip()

"""Problems of a data set, graded for the value of their answer; with drawings where the rows have some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from palestra.envs.tasks.base import Item
from palestra.envs.tasks.data import DataOptions, DataTask, cell, text_in, texts_in
from palestra.envs.tasks.pictures import illustrated, pictures
from palestra.errors import BadValue
from palestra.grading import Grade, grade_math
from palestra.parsing import last_boxed


class MathProblems(DataTask):
    r"""Rows with a question and an answer.

    An answer is a value, several accepted ones, or a whole solution that ends in GSM8K's `#### 42` or in `\boxed{42}`.
    """

    inline = False  # an answer that is no plain number may take the grader a while

    def __init__(self, *, answer: str = "answer", images: str | None = None, **options: Unpack[DataOptions]) -> None:
        super().__init__(**options)
        self.answer = answer
        self.images = images
        self.rows.need(answer, "answer")
        if images is not None:
            self.rows.need(images, "images")

    def item_of(self, row: Mapping[str, Any], key: str) -> Item:
        golds = self._golds(row)
        if not golds:
            raise BadValue(f"{key} has no answer in the column {self.answer!r}")
        text = text_in(cell(row, self.question))
        seen = [] if self.images is None else pictures(cell(row, self.images), self.rows.folder)
        return Item(question=illustrated(text, seen), answer=golds[0], gold=golds, key=key)

    def _golds(self, row: Mapping[str, Any]) -> list[str]:
        return [gold for text in texts_in(cell(row, self.answer)) if (gold := final_answer(text))]

    def grade(self, answer: str) -> Grade:
        return grade_math(answer, self.item.gold)

    def random_answer(self) -> str:
        golds = self._golds(self.another_row())
        return golds[0] if golds else "0"

    def example_answer(self) -> str:
        return "42"


def final_answer(text: str) -> str:
    r"""What a written solution comes to: behind the last `####`, or in the last `\boxed{}`; else all of it."""
    _, marked, behind = text.rpartition("####")
    if marked:
        return behind.strip()
    found = last_boxed(text) if "\\boxed{" in text else None
    return (text if found is None else found).strip()

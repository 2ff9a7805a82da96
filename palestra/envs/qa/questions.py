"""Questions of fact from a data set, with one accepted answer or many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from palestra.envs.tasks.base import Item
from palestra.envs.tasks.data import DataOptions, DataTask, cell, text_in, texts_in
from palestra.errors import BadValue
from palestra.grading import Grade, grade_qa
from palestra.parsing import last_boxed, last_tagged


class Questions(DataTask):
    r"""Rows with a question and its golds: text, a list, or TriviaQA's object with aliases.

    Correct is an exact match after the usual normalisation, or an F1 of `threshold` with one of the golds. The answer
    is read from `\boxed{}`, or from `<answer></answer>`, which models for search were taught.
    """

    def __init__(
        self, *, answer: str = "answer", threshold: float | None = None, **options: Unpack[DataOptions]
    ) -> None:
        super().__init__(**options)
        if threshold is not None and not 0 < threshold <= 1:
            raise BadValue(f"threshold is an F1 above 0 and up to 1, or None, got {threshold!r}")
        self.answer = answer
        self.threshold = threshold
        self.rows.need(answer, "answer")

    def item_of(self, row: Mapping[str, Any], key: str) -> Item:
        golds = texts_in(cell(row, self.answer))
        if not golds:
            raise BadValue(f"{key} has no answer in the column {self.answer!r}")
        return Item(question=text_in(cell(row, self.question)), answer=golds[0], gold=golds, key=key)

    def read(self, reply: str) -> str | None:
        found = last_boxed(reply)
        return last_tagged(reply) if found is None else found

    def grade(self, answer: str) -> Grade:
        return grade_qa(answer, self.item.gold, threshold=self.threshold)

    def random_answer(self) -> str:
        golds = texts_in(cell(self.another_row(), self.answer))
        return golds[0] if golds else "nobody"

    def example_answer(self) -> str:
        return "Marie Curie"

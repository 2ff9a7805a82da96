"""Statements over rules, from a data set: true, false, or, where rows say so, unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from palestra.envs.tasks.base import Item
from palestra.envs.tasks.data import DataOptions, DataTask, cell, text_in
from palestra.errors import BadValue
from palestra.grading import Grade
from palestra.parsing import clip

# How rows and models write it; RuleTaker itself says "entailment" and "not entailment".
_WORDS = {
    "true": "True",
    "yes": "True",
    "entailment": "True",
    "entailed": "True",
    "1": "True",
    "false": "False",
    "no": "False",
    "not entailment": "False",
    "not entailed": "False",
    "0": "False",
    "unknown": "Unknown",
    "uncertain": "Unknown",
    "undetermined": "Unknown",
}


class Statements(DataTask):
    """Rows with a theory and a statement as one question, or the theory in a column of its own (`context=`)."""

    def __init__(self, *, answer: str = "answer", context: str | None = None, **options: Unpack[DataOptions]) -> None:
        super().__init__(**options)
        self.answer = answer
        self.context = context
        self.rows.need(answer, "answer")
        if context is not None:
            self.rows.need(context, "context")

    def item_of(self, row: Mapping[str, Any], key: str) -> Item:
        truth = truth_in(cell(row, self.answer))
        if truth is None:
            raise BadValue(f"{key}: an answer is True, False or Unknown, got {cell(row, self.answer)!r}")
        text = text_in(cell(row, self.question))
        if self.context is not None:
            text = f"{text_in(cell(row, self.context))}\n\n{text}"
        return Item(question=text, answer=truth, key=key)

    def grade(self, answer: str) -> Grade:
        said = truth_in(answer)
        if said == self.item.answer:
            return Grade(correct=True, score=1.0, why=f"it is {said}")
        if said is None:
            hint = "Answer True, False or Unknown."
            return Grade(correct=False, score=0.0, why=f"{clip(answer)!r} is no truth value", hint=hint)
        return Grade(correct=False, score=0.0, why=f"{said} was said, it is {self.item.answer}")

    def random_answer(self) -> str:
        return truth_in(cell(self.another_row(), self.answer)) or "False"

    def example_answer(self) -> str:
        return "True"


def truth_in(value: Any) -> str | None:
    """True, False or Unknown, in whichever words; None: none of them."""
    text = str(value)[:40].strip().strip(".").lower()
    if text.startswith("\\text{"):
        text = text[6:].removesuffix("}")
    return _WORDS.get(text.strip().replace("_", " "))

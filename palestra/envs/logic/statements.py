"""Classify statements from a dataset as true, false or unknown, given facts and rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from palestra.envs.tasks.base import Item
from palestra.envs.tasks.cells import cell_text, get_cell
from palestra.envs.tasks.data import DataOptions, DataTask
from palestra.errors import BadValue
from palestra.grading import Grade
from palestra.parsing import clip, plain

# Spellings of the labels in datasets and replies; RuleTaker uses "entailment" and "not entailment".
_LABELS = {
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
    """Statements from a dataset; their facts and rules are in the same column or in a separate one (`context=`)."""

    def __init__(self, *, answer: str = "answer", context: str | None = None, **options: Unpack[DataOptions]) -> None:
        self.context = context  # must precede super().__init__, which calls `task_columns`
        super().__init__(**options)
        self.answer = answer
        self.rows.require_column(answer, "answer")
        if context is not None:
            self.rows.require_column(context, "context")

    def task_columns(self) -> tuple[str, ...]:
        return (self.question,) if self.context is None else (self.question, self.context)

    def make_item(self, row: Mapping[str, Any], key: str) -> Item:
        label = parse_label(get_cell(row, self.answer))
        if label is None:
            raise BadValue(f"{key}: the answer must be True, False or Unknown, got {get_cell(row, self.answer)!r}")
        text = cell_text(get_cell(row, self.question))
        if self.context is not None:
            text = f"{cell_text(get_cell(row, self.context))}\n\n{text}"
        return Item(question=text, answer=label, key=key)

    def grade(self, answer: str) -> Grade:
        label = parse_label(answer)
        if label == self.item.answer:
            return Grade(correct=True, score=1.0, why=f"the answer is {label}")
        if label is None:
            hint = "Answer True, False or Unknown."
            return Grade(correct=False, score=0.0, why=f"{clip(answer)!r} is not a truth value", hint=hint)
        return Grade(correct=False, score=0.0, why=f"answered {label}, but the correct answer is {self.item.answer}")

    def random_answer(self) -> str:
        return parse_label(get_cell(self.random_row(), self.answer)) or "False"

    def example_answer(self) -> str:
        return "True"


def parse_label(value: Any) -> str | None:
    """Return "True", "False" or "Unknown" if `value` is a known spelling of that label, else None."""
    return _LABELS.get(plain(str(value)[:100]).lower().replace("_", " "))

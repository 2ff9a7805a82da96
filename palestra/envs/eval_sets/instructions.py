"""Prompts with verifiable instructions, as in IFEval; the whole reply is the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from palestra.envs.tasks.base import Item
from palestra.envs.tasks.cells import cell_text, get_cell
from palestra.envs.tasks.data import DataOptions, DataTask
from palestra.errors import BadValue
from palestra.grading import Grade
from palestra.grading.instructions import CHECKS, grade_instructions
from palestra.parsing import after_thinking


class Instructions(DataTask):
    """Prompts from IFEval.

    A reply is correct if it follows all instructions in the row (prompt-level strict accuracy) or, with `loose`, their
    relaxed forms; the score is the fraction of instructions that it follows. Reasoning in `<think></think>` is removed.
    The prompt from the dataset is used unchanged. There is no expert, because the rows have no answers.
    """

    answer_name = "reply"

    def __init__(
        self,
        *,
        instructions: str = "instruction_id_list",
        settings: str = "kwargs",
        loose: bool = False,
        **options: Unpack[DataOptions],
    ) -> None:
        options.setdefault("format_note", False)
        super().__init__(**options)
        self.instructions = instructions
        self.settings = settings
        self.loose = bool(loose)
        self.rows.require_column(instructions, "instructions")
        self.rows.require_column(settings, "settings")

    def make_item(self, row: Mapping[str, Any], key: str) -> Item:
        names, settings = get_cell(row, self.instructions), get_cell(row, self.settings)
        unknown = [name for name in names if name not in CHECKS]
        if unknown or len(names) != len(settings):
            raise BadValue(
                f"{key}: IFEval does not support "
                f"{unknown[0] if unknown else 'different numbers of instructions and settings'}"
            )
        checks = [(name, given or {}) for name, given in zip(names, settings, strict=True)]
        return Item(question=cell_text(get_cell(row, self.question)), answer="", gold=checks, key=key)

    def read(self, reply: str) -> str | None:
        return after_thinking(reply)

    def write(self, answer: str) -> str:
        return answer

    def grade(self, answer: str) -> Grade:
        return grade_instructions(answer, self.item.gold, loose=self.loose)

    def expert_action(self) -> str | None:
        return None

    def random_answer(self) -> str:
        return self.player_rng.choice(("Yes.", "I do not know.", "Here is my answer."))

    def example_answer(self) -> str:
        return "Here is my answer."

    def format_note(self) -> str:
        return "Follow all instructions; your whole reply is checked."

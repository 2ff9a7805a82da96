"""Multiple-choice questions from a dataset, such as GPQA, with the options in a shuffled order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Unpack

from palestra.envs.tasks.base import Item
from palestra.envs.tasks.cells import cell_text, get_cell
from palestra.envs.tasks.data import DataOptions, DataTask
from palestra.errors import BadValue
from palestra.grading import Grade
from palestra.parsing import last_boxed, last_tagged
from palestra.seeding import child_seed

LETTERS = "ABCDEFGHIJ"
GPQA_WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_LETTER = re.compile(r"\W*(?:\\text\{|option |choice |answer:? )?\W*([A-J])(?=\s*(?:[).:}\]$*\\]|$))", re.I)
_STATED = re.compile(r"(?i:answer(?:\s+is)?):?\W{0,4}([A-J])\b")  # "the answer is a proton" names no option


class MultipleChoice(DataTask):
    """Questions with one correct option.

    `answer` is the column with the correct option, and `wrong` names the columns with the other options, or one column
    with a list of them. Each row has a fixed order of options, which depends on `option_seed` and the row's number. The
    answer is the letter or the text of an option, in `\\boxed{}`, in `<answer></answer>`, or after "answer:".
    """

    def __init__(
        self,
        *,
        answer: str = "Correct Answer",
        wrong: str | Sequence[str] = GPQA_WRONG,
        option_seed: int = 0,
        **options: Unpack[DataOptions],
    ) -> None:
        super().__init__(**options)
        self.answer = answer
        self.wrong = (wrong,) if isinstance(wrong, str) else tuple(wrong)
        self.option_seed = option_seed
        for keyword, columns in (("answer", (answer,)), ("wrong", self.wrong)):
            for column in columns:
                self.rows.require_column(column, keyword)

    def make_item(self, row: Mapping[str, Any], key: str) -> Item:
        right = cell_text(get_cell(row, self.answer)).strip()
        cells = [get_cell(row, column) for column in self.wrong]
        wrong = [cell_text(one).strip() for cell in cells for one in (cell if isinstance(cell, list) else [cell])]
        if not right or not 1 <= len(wrong) < len(LETTERS):
            raise BadValue(f"{key} needs a correct option and 1 to {len(LETTERS) - 1} wrong ones")
        options = [right, *wrong]
        Random(child_seed(self.option_seed, "options", self.index)).shuffle(options)
        listed = "\n".join(f"{letter}) {option}" for letter, option in zip(LETTERS, options, strict=False))
        question = f"{cell_text(get_cell(row, self.question)).strip()}\n\n{listed}"
        return Item(question=question, answer=LETTERS[options.index(right)], gold=tuple(options), key=key)

    def read(self, reply: str) -> str | None:
        answer = last_boxed(reply) or last_tagged(reply)
        if answer is not None:
            return answer
        stated = _STATED.findall(reply)
        return stated[-1] if stated else None

    def grade(self, answer: str) -> Grade:
        options: tuple[str, ...] = self.item.gold
        match = _LETTER.match(answer)
        exact = [i for i, option in enumerate(options) if option.casefold() == answer.strip().casefold()]
        number = exact[0] if exact else LETTERS.index(match[1].upper()) if match else -1
        correct = 0 <= number < len(options) and LETTERS[number] == self.item.answer
        why = f"{answer.strip()[:40]!r}, the answer is {self.item.answer}"
        return Grade(correct=correct, score=float(correct), why=why)

    def random_answer(self) -> str:
        return LETTERS[self.player_rng.randrange(len(self.item.gold))]

    def example_answer(self) -> str:
        return "B"

    def format_note(self) -> str:
        return (
            f"Write the letter of your answer inside \\boxed{{}}, for example {self.example_action()}. "
            "You may think first; only the last \\boxed{} of your reply counts."
        )

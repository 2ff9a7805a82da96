"""Statements and rules from data sets: ids are GEM's. Data only."""

from __future__ import annotations

from functools import partial

from palestra.envs.tasks.ids import data_set

logic_set = partial(data_set, "palestra.envs.logic.statements:Statements", question="question", answer="answer")

DATA = [
    *(
        logic_set(
            f"logic:RuleTaker-d{d}",
            f"does it follow from the rules, {d} steps deep",
            dataset=f"axon-rl/RuleTaker-d{d}-70k",
        )
        for d in (0, 1, 2, 3, 5)
    ),
    logic_set("logic:File-v0", "statements of your own: a file, a folder or any data set"),
]

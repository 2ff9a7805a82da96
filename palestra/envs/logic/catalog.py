"""Catalog of the `logic` family (data only): GEM's datasets and generated deduction tasks."""

from __future__ import annotations

from functools import partial

from palestra.envs.tasks.ids import data_spec
from palestra.spec import EnvSpec

_logic_data = partial(data_spec, "palestra.envs.logic.statements:Statements", question="question", answer="answer")

_DATA_SPECS = [
    *(
        _logic_data(
            f"logic:RuleTaker-d{d}",
            f"decide whether a statement follows from rules (proof depth {d})",
            dataset=f"axon-rl/RuleTaker-d{d}-70k",
        )
        for d in (0, 1, 2, 3, 5)
    ),
    _logic_data("logic:File-v0", "your own statements from a file, a folder or any dataset"),
]

# Players without skill solve 1/2 or 1/3 of the tasks, because there are two or three possible answers.
_GENERATED_SPECS = [
    EnvSpec(
        id=f"logic:Rules-v0-d{depth}{'' if world == 'closed' else '-open'}",
        entry_point="palestra.envs.logic.rules:Rules",
        kwargs={"depth": depth, "world": world},
        summary=f"decide whether a statement follows from facts and rules{' or is unknown' * (world == 'open')} "
        f"(proof depth {depth})",
        reward_range=(-0.1, 1.0),
        expert_success=1.0,
        random_success=chance,
        echo_success=chance,
        constant_success=chance,
        rates_reason="few_answers",
        splits=("train", "test"),
    )
    for world, chance in (("closed", 0.5), ("open", 0.333))
    for depth in (0, 1, 2, 3, 5)
]

SPECS = [*_DATA_SPECS, *_GENERATED_SPECS]

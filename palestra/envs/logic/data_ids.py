"""Statements and rules from data sets: ids are GEM's. Data only."""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec


def _logic(name: str, summary: str, **kwargs: Any) -> EnvSpec:
    return EnvSpec(
        id=f"logic:{name}",
        entry_point="palestra.envs.logic.statements:Statements",
        kwargs={"question": "question", "answer": "answer", **kwargs},
        summary=summary,
        reward_range=(-0.1, 1.0),
        extra="data",
        needs_data=True,
    )


DATA = [
    *(
        _logic(
            f"RuleTaker-d{d}", f"does it follow from the rules, {d} steps deep", dataset=f"axon-rl/RuleTaker-d{d}-70k"
        )
        for d in (0, 1, 2, 3, 5)
    ),
    _logic("File-v0", "statements of your own: a file, a folder or any data set"),
]

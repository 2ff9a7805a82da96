"""Programming problems from data sets: ids are GEM's. Data only."""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec


def code_set(env_id: str, summary: str, **kwargs: Any) -> EnvSpec:
    """An id whose rows carry tests."""
    return EnvSpec(
        id=env_id,
        entry_point="palestra.envs.code.problems:CodeProblems",
        kwargs={"question": "problem", "tests": "tests", **kwargs},
        summary=summary,
        reward_range=(-0.1, 1.0),
        extra="data",
        needs_data=True,
    )


DATA = [
    code_set("code:CodeContest", "contest problems, read from standard input", dataset="axon-rl/CodeContest"),
    code_set("code:Taco8k", "contest problems of TACO", dataset="axon-rl/TACO-8k"),
    code_set("code:PrimeIntellect15k", "problems with verified tests", dataset="axon-rl/PrimeIntellect-15k"),
    code_set("code:File-v0", "problems with tests of your own: a file, a folder or any data set"),
]

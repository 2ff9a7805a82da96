"""Catalog of the `qa` family (data only): GEM's datasets and questions about the generated encyclopedia.

`benchmarks/rates.py` measures the success rates.
"""

from __future__ import annotations

from functools import partial

from palestra.envs.tasks.ids import data_spec
from palestra.spec import EnvSpec

qa_data = partial(data_spec, "palestra.envs.qa.questions:Questions", question="problem", answer="answer")

_DATA_SPECS = [
    qa_data("qa:NaturalQuestions", "questions from search engine users", dataset="axon-rl/NaturalQuestions"),
    qa_data("qa:HotpotQA", "questions whose answer requires two articles", dataset="axon-rl/HotpotQA"),
    qa_data("qa:File-v0", "your own questions from a file, a folder or any dataset"),
]


def _world(kind: str, summary: str, random: float, echo: float, constant: float, reason: str = "") -> EnvSpec:
    return EnvSpec(
        id=f"qa:World-v0-{kind}",
        entry_point="palestra.envs.qa.world:WorldQuestions",
        kwargs={"kind": kind},
        summary=f"{summary}; without tools, the agent must answer from memory",
        reward_range=(-0.1, 1.0),
        expert_success=1.0,
        random_success=random,
        echo_success=echo,
        constant_success=constant,
        rates_reason=reason,
        splits=("train", "test"),
    )


# Success rates for the random, echo and constant players.
_GENERATED_SPECS = [
    _world("1hop", "a question answered by one page of the generated encyclopedia", 0.0, 0.0, 0.007),
    _world("2hop", "a question whose answer requires two pages", 0.0, 0.0, 0.01),
    _world("3hop", "a question whose answer requires three pages", 0.0, 0.0, 0.007),
    _world("4hop", "a question whose answer requires four pages", 0.0, 0.0, 0.007),
    _world("compare", "compare two entities", 0.5, 0.343, 0.003, "few_answers"),
    _world("count", "count the entities with a given property", 0.15, 0.2, 0.2),
    _world("unanswerable", "questions, 30% of them without an answer in the encyclopedia", 0.1, 0.0, 0.3),
    _world("mixed", "questions of all kinds", 0.1, 0.047, 0.13),
]

SPECS = [*_DATA_SPECS, *_GENERATED_SPECS]

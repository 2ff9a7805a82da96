"""Questions of fact that are made up, about the generated world; `benchmarks/rates.py` measures rates. Data only."""

from __future__ import annotations

from palestra.spec import EnvSpec


def _world(kind: str, summary: str, random: float) -> EnvSpec:
    return EnvSpec(
        id=f"qa:World-v0-{kind}",
        entry_point="palestra.envs.qa.world:WorldQuestions",
        kwargs={"kind": kind},
        summary=summary,
        reward_range=(-0.1, 1.0),
        expert_success=1.0,
        random_success=random,
    )


GENERATED = [
    _world("1hop", "a question that one page of the generated world answers", 0.0),
    _world("2hop", "a question over two of its pages", 0.0),
    _world("3hop", "a question over three of its pages", 0.0),
    _world("4hop", "a question over four of its pages", 0.0),
    _world("compare", "which of two has more or less of something", 0.5),
    _world("count", "how many there are, or how many of them", 0.21),
    _world("unanswerable", "half of them no page answers; then the answer is unknown", 0.25),
    _world("mixed", "questions of all kinds", 0.1),
]

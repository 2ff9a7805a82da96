"""Specs for the deep search environments for the generated world and for AgentGym-RL's seven question sets.

The budgets for the generated world are based on the solver, which uses one search and one open action per page. A
question with h hops requires h pages, a comparison at most four pages, and a count at most 14 pages (in a world of
2,000 pages). The rest of a budget leaves room for less efficient policies.
The success rates for the echo and constant players are taken from `qa:World-v0`, which has the same questions.
"""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec


def _world(
    kind: str,
    summary: str,
    *,
    max_searches: int,
    max_turns: int,
    random: float,
    echo: float = 0.0,
    constant: float = 0.01,
    reason: str = "",
) -> EnvSpec:
    return EnvSpec(
        id=f"search:World-v0-{kind}",
        entry_point="palestra.envs.deep_search.world:WorldSearch",
        kwargs={"kind": kind, "max_searches": max_searches, "max_turns": max_turns},
        summary=summary,
        reward_range=(0.0, 1.0),
        expert_success=1.0,
        random_success=random,
        echo_success=echo,
        constant_success=constant,
        rates_reason=reason,
        splits=("train", "test"),
        extra="search",
    )


def _data(name: str, summary: str, **kwargs: Any) -> EnvSpec:
    return EnvSpec(
        id=f"search:{name}",
        entry_point="palestra.envs.deep_search.data:DataSearch",
        kwargs={"max_searches": 5, "max_turns": 12, **kwargs},
        summary=summary,
        reward_range=(0.0, 1.0),
        extra="search",
        needs_data=True,
    )


def _set(name: str, split: str, summary: str) -> EnvSpec:
    return _data(name, summary, dataset="axon-rl/search-eval", data_split=split)


SPECS = [
    _world("1hop", "questions answered by one page", max_searches=4, max_turns=10, random=0.0),
    _world("2hop", "questions that need two pages", max_searches=5, max_turns=12, random=0.0),
    _world("3hop", "questions that need three pages", max_searches=6, max_turns=15, random=0.0),
    _world("4hop", "questions that need four pages", max_searches=8, max_turns=18, random=0.0),
    _world(
        "compare",
        "questions that compare two entities",
        max_searches=6,
        max_turns=14,
        random=0.5,
        echo=0.343,
        constant=0.003,
        reason="few_answers",
    ),
    _world("count", "counting questions", max_searches=14, max_turns=30, random=0.15, echo=0.2, constant=0.2),
    _world(
        "unanswerable", "questions, of which 30% have no answer on any page", max_searches=8, max_turns=18, random=0.09
    ),
    _world("mixed", "questions of all kinds", max_searches=14, max_turns=30, random=0.1, echo=0.047, constant=0.13),
    _set("NQ", "nq", "Natural Questions, answered by searching"),
    _set("TriviaQA", "tq", "trivia questions, answered by searching"),
    _set("PopQA", "popqa", "questions about long-tail entities, answered by searching"),
    _set("HotpotQA", "hotpotqa", "two-article questions, answered by searching"),
    _set("2Wiki", "2wiki", "questions about two or more articles, answered by searching"),
    _set("Musique", "musique", "questions about two to four articles, answered by searching"),
    _set("Bamboogle", "bamboogle", "two-step questions that search engines get wrong, answered by searching"),
    _data("File-v0", "your own questions, answered by searching your own texts"),
]

"""The registered deep searches: the generated world, and AgentGym-RL's seven sets of questions. Data only.

The world's budgets: a page takes its solver one search and one turn to open. A question of h hops leads over h pages, a
comparison over four at most, a count over 14 (in a world of 2,000 pages); the rest is slack for those who search worse.
"""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec


def _world(kind: str, summary: str, *, max_searches: int, max_turns: int, random: float) -> EnvSpec:
    return EnvSpec(
        id=f"search:World-v0-{kind}",
        entry_point="palestra.envs.deep_search.world:WorldSearch",
        kwargs={"kind": kind, "max_searches": max_searches, "max_turns": max_turns},
        summary=summary,
        reward_range=(0.0, 1.0),
        expert_success=1.0,
        random_success=random,
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
    return _data(name, summary, dataset="axon-rl/search-eval", split=split)


SPECS = [
    _world("1hop", "search for what one page tells", max_searches=4, max_turns=10, random=0.0),
    _world("2hop", "search for what two pages lead to", max_searches=5, max_turns=12, random=0.0),
    _world("3hop", "search for what three pages lead to", max_searches=6, max_turns=15, random=0.0),
    _world("4hop", "search for what four pages lead to", max_searches=8, max_turns=18, random=0.0),
    _world("compare", "search for which of two has more or less", max_searches=6, max_turns=14, random=0.5),
    _world("count", "search for how many there are", max_searches=14, max_turns=30, random=0.23),
    _world("unanswerable", "half of them no page answers", max_searches=8, max_turns=18, random=0.26),
    _world("mixed", "search for answers of all kinds", max_searches=14, max_turns=30, random=0.09),
    _set("NQ", "nq", "what people asked a search engine, searched for"),
    _set("TriviaQA", "tq", "questions of trivia enthusiasts, searched for"),
    _set("PopQA", "popqa", "things few people know, searched for"),
    _set("HotpotQA", "hotpotqa", "questions over two articles, searched for"),
    _set("2Wiki", "2wiki", "questions over two articles and more, searched for"),
    _set("Musique", "musique", "questions over two to four articles, searched for"),
    _set("Bamboogle", "bamboogle", "two-step questions a search engine answers wrongly, searched for"),
    _data("File-v0", "questions of your own, searched for in texts of your own"),
]

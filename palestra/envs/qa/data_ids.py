"""Questions of fact from data sets: ids are GEM's. Data only."""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec


def qa_set(env_id: str, summary: str, **kwargs: Any) -> EnvSpec:
    """An id whose rows carry golden answers."""
    return EnvSpec(
        id=env_id,
        entry_point="palestra.envs.qa.questions:Questions",
        kwargs={"question": "problem", "answer": "answer", **kwargs},
        summary=summary,
        reward_range=(-0.1, 1.0),
        extra="data",
        needs_data=True,
    )


DATA = [
    qa_set("qa:NaturalQuestions", "what people asked a search engine", dataset="axon-rl/NaturalQuestions"),
    qa_set("qa:HotpotQA", "questions over two articles", dataset="axon-rl/HotpotQA"),
    qa_set("qa:File-v0", "questions of your own: a file, a folder or any data set"),
]

"""Deep search over data sets: questions and answers from a data set, and an index or a search server of the user."""

from __future__ import annotations

import os
from typing import Unpack

from palestra.envs.deep_search.env import DeepSearch, SearchOptions
from palestra.envs.qa.questions import Questions
from palestra.errors import DataMissing

INDEX = "PALESTRA_SEARCH"  # environment variable that is read if `index` is not passed


class DataSearch(DeepSearch):
    """Answer a question from a data set by searching the texts of `index`.

    Rows are read from the Hugging Face Hub (`dataset`), a file or a folder (`path`), or a `mirror`, and shuffled like
    those of all data-backed tasks. `question` and `answer` are the column names, and `threshold` is the minimum F1 of a
    correct answer. `index` is the folder of an index or the address of a server; it defaults to the environment
    variable PALESTRA_SEARCH. The expert knows the answer and submits it in the first turn.
    """

    questions: Questions

    def __init__(
        self,
        *,
        dataset: str | None = None,
        path: str | None = None,
        split: str | None = None,
        config: str | None = None,
        revision: str | None = None,
        mirror: str | None = None,
        shuffle: bool = True,
        shuffle_seed: int = 0,
        question: str = "question",
        answer: str = "answer",
        threshold: float | None = None,
        **options: Unpack[SearchOptions],
    ) -> None:
        if options.get("index") is None:
            options["index"] = os.environ.get(INDEX, "")
        if options["index"] == "":
            raise DataMissing(
                "there is nothing to search: pass as `index` the folder of an index (`palestra search-index TEXTS "
                f"--out FOLDER` builds one) or the address of a search server, or set {INDEX}"
            )
        questions = Questions(
            dataset=dataset,
            path=path,
            split=split,
            config=config,
            revision=revision,
            mirror=mirror,
            shuffle=shuffle,
            shuffle_seed=shuffle_seed,
            question=question,
            answer=answer,
            threshold=threshold,
        )
        super().__init__(questions, None, **options)

    def question_text(self) -> str:
        return f"Question: {super().question_text()}"

"""Deep search environment with questions from a dataset, answered by searching an index or a search server."""

from __future__ import annotations

import os
from typing import Unpack

from palestra.envs.deep_search.env import DeepSearch, SearchOptions
from palestra.envs.qa.questions import Questions
from palestra.errors import DataMissing

INDEX = "PALESTRA_SEARCH"  # environment variable that is read if `index` is not passed


class DataSearch(DeepSearch):
    """Answer a question from a dataset by searching the texts in `index`.

    Rows are read from the Hugging Face Hub (`dataset`), a file or a folder (`path`), or a `mirror`, and shuffled as in
    all other dataset tasks. `question` and `answer` are the column names, and `threshold` is the minimum F1 score for a
    correct answer. `index` is an index folder or a server address, and defaults to the environment variable
    PALESTRA_SEARCH. The expert submits the answer from the dataset in the first turn.
    """

    questions: Questions

    def __init__(
        self,
        *,
        dataset: str | None = None,
        path: str | None = None,
        data_split: str | None = None,
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
                "there is no index to search; build one with `palestra search-index TEXTS --out FOLDER`, then pass its "
                f"folder or the address of a search server as `index`, or set the environment variable {INDEX}"
            )
        questions = Questions(
            dataset=dataset,
            path=path,
            data_split=data_split,
            split=options.get("split"),
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

"""Deep search over data sets: rows with questions and answers, and the user's index or server to search."""

from __future__ import annotations

import os
from typing import Unpack

from palestra.envs.deep_search.env import DeepSearch, SearchOptions
from palestra.envs.qa.questions import Questions
from palestra.errors import DataMissing

INDEX = "PALESTRA_SEARCH"  # environment variable used if `index` is not given


class DataSearch(DeepSearch):
    """A question of a data set, to be answered from the texts of `index`.

    Rows come from the hub (`dataset`), a file or a folder (`path`), or a `mirror`, in the shuffled order of all
    data-backed tasks. `question` and `answer` are the column names, and `threshold` is the F1 from which an answer
    counts as correct. `index`, or else the environment variable PALESTRA_SEARCH, is the folder of an index or the
    address of a server. The expert knows the answer and gives it at once.
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

"""Test sets: ids are GEM's, rows are those of its collections. Data only."""

from __future__ import annotations

from palestra.envs.code.data_ids import code_set
from palestra.envs.math.data_ids import math_set
from palestra.envs.qa.data_ids import qa_set

_MATH = "axon-rl/math-eval"
_SEARCH = "axon-rl/search-eval"
_ASKED = {"question": "question"}  # the column that holds it

DATA = [
    math_set("eval:MATH500", "500 competition problems", dataset=_MATH, split="math"),
    math_set("eval:AMC", "problems of the American Mathematics Competitions", dataset=_MATH, split="amc"),
    math_set("eval:OlympiadBench", "olympiad problems", dataset=_MATH, split="olympiad_bench"),
    math_set("eval:Minerva", "undergraduate science and mathematics", dataset=_MATH, split="minerva"),
    math_set("eval:AIME24", "the American Invitational Mathematics Examination of 2024", dataset=_MATH, split="aime24"),
    code_set(
        "eval:CodeContest", "contest problems that are not trained on", dataset="axon-rl/CodeContest", split="test"
    ),
    qa_set(
        "eval:QaOpen",
        "Natural Questions with several accepted answers",
        dataset="google-research-datasets/nq_open",
        split="validation",
        **_ASKED,
    ),
    qa_set("eval:2Wiki", "questions over two articles", dataset=_SEARCH, split="2wiki", **_ASKED),
    qa_set("eval:PopQA", "questions about things few people know", dataset=_SEARCH, split="popqa", **_ASKED),
    qa_set("eval:TriviaQA", "questions of trivia enthusiasts", dataset=_SEARCH, split="tq", **_ASKED),
    qa_set("eval:HotpotQA", "questions over two articles", dataset=_SEARCH, split="hotpotqa", **_ASKED),
    qa_set(
        "eval:Bamboogle",
        "two-step questions a search engine answers wrongly",
        dataset=_SEARCH,
        split="bamboogle",
        **_ASKED,
    ),
    qa_set("eval:NaturalQuestions", "what people asked a search engine", dataset=_SEARCH, split="nq", **_ASKED),
    qa_set("eval:Musique", "questions over two to four articles", dataset=_SEARCH, split="musique", **_ASKED),
]

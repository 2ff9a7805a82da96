"""Catalog of the family `eval` (data only): GEM's evaluation sets."""

from __future__ import annotations

from palestra.envs.code.catalog import code_data
from palestra.envs.math.catalog import math_data
from palestra.envs.qa.catalog import qa_data

_MATH = "axon-rl/math-eval"
_SEARCH = "axon-rl/search-eval"

SPECS = [
    math_data("eval:MATH500", "500 competition problems", dataset=_MATH, data_split="math"),
    math_data("eval:AMC", "problems from the American Mathematics Competitions", dataset=_MATH, data_split="amc"),
    math_data("eval:OlympiadBench", "olympiad problems", dataset=_MATH, data_split="olympiad_bench"),
    math_data("eval:Minerva", "undergraduate science and mathematics", dataset=_MATH, data_split="minerva"),
    math_data("eval:AIME24", "American Invitational Mathematics Examination 2024", dataset=_MATH, data_split="aime24"),
    code_data(
        "eval:CodeContest",
        "programming contest problems from the test split",
        dataset="axon-rl/CodeContest",
        data_split="test",
    ),
    qa_data(
        "eval:QaOpen",
        "Natural Questions with several accepted answers",
        dataset="google-research-datasets/nq_open",
        data_split="validation",
        question="question",
    ),
    qa_data(
        "eval:2Wiki",
        "questions whose answer requires two articles",
        dataset=_SEARCH,
        data_split="2wiki",
        question="question",
    ),
    qa_data(
        "eval:PopQA", "questions about little-known entities", dataset=_SEARCH, data_split="popqa", question="question"
    ),
    qa_data("eval:TriviaQA", "trivia questions", dataset=_SEARCH, data_split="tq", question="question"),
    qa_data(
        "eval:HotpotQA",
        "questions whose answer requires two articles",
        dataset=_SEARCH,
        data_split="hotpotqa",
        question="question",
    ),
    qa_data(
        "eval:Bamboogle",
        "two-step questions that a search engine answers incorrectly",
        dataset=_SEARCH,
        data_split="bamboogle",
        question="question",
    ),
    qa_data(
        "eval:NaturalQuestions",
        "questions from users of a search engine",
        dataset=_SEARCH,
        data_split="nq",
        question="question",
    ),
    qa_data(
        "eval:Musique",
        "questions whose answer requires two to four articles",
        dataset=_SEARCH,
        data_split="musique",
        question="question",
    ),
]

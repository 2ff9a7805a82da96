"""Catalog of the `eval` family (data only): GEM's evaluation sets and other standard benchmarks."""

from __future__ import annotations

from palestra.envs.code.catalog import code_data
from palestra.envs.math.catalog import math_data
from palestra.envs.qa.catalog import qa_data
from palestra.envs.tasks.ids import data_spec

_MATH = "axon-rl/math-eval"
_SEARCH = "axon-rl/search-eval"

SPECS = [
    math_data("eval:MATH500", "500 competition problems", dataset=_MATH, data_split="math"),
    math_data("eval:AMC", "problems from the American Mathematics Competitions", dataset=_MATH, data_split="amc"),
    math_data("eval:OlympiadBench", "olympiad problems", dataset=_MATH, data_split="olympiad_bench"),
    math_data("eval:Minerva", "undergraduate science and mathematics", dataset=_MATH, data_split="minerva"),
    math_data("eval:AIME24", "American Invitational Mathematics Examination 2024", dataset=_MATH, data_split="aime24"),
    math_data(
        "eval:AIME25",
        "American Invitational Mathematics Examination 2025",
        dataset="math-ai/aime25",
        data_split="test",
    ),
    *(
        data_spec(
            "palestra.envs.eval_sets.multiple_choice:MultipleChoice",
            "eval:GPQA" if subset == "diamond" else f"eval:GPQA-{subset}",
            f"graduate-level science questions with four options ({subset} subset)",
            dataset="Idavidrein/gpqa",
            config=f"gpqa_{subset}",
            data_split="train",
            question="Question",
        )
        for subset in ("diamond", "main", "extended")
    ),
    data_spec(
        "palestra.envs.eval_sets.instructions:Instructions",
        "eval:IFEval",
        "541 prompts with instructions that a program can check",
        dataset="google/IFEval",
        data_split="train",
        question="prompt",
    ),
    data_spec(
        "palestra.envs.eval_sets.live_code:LiveCodeBench",
        "eval:LiveCodeBench",
        "dated programming contest problems",
        dataset="lighteval/code_generation_lite",
        config="v6",
        data_split="test",
    ),
    *(
        data_spec(
            "palestra.envs.eval_sets.function_calls:FunctionCalls",
            f"eval:BFCL-{category}",
            f"Berkeley Function Calling Leaderboard: {summary}",
            dataset="gorilla-llm/Berkeley-Function-Calling-Leaderboard",
            data_split="train",
            category=category,
        )
        for category, summary in (
            ("simple", "one call to one function"),
            ("multiple", "one call to one of several functions"),
            ("parallel", "several calls to one function"),
            ("parallel_multiple", "several calls to several functions"),
        )
    ),
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
        "questions from search engine users",
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

"""GEM's grading functions, implemented with Palestra's graders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palestra.compat.gem.parsing import extract_last_boxed_answer
from palestra.grading import get_grader
from palestra.grading import grade as grade_with

extract_answer = extract_last_boxed_answer


def em_check(prediction: str, golden_answers: str | Sequence[str]) -> bool:
    """Return whether the prediction matches an answer, ignoring case, articles and punctuation."""
    golden = [golden_answers] if isinstance(golden_answers, str) else list(map(str, golden_answers))
    return grade_with(get_grader("qa"), prediction, golden).correct


def grade(model_answer: str, gt_answer: str, fast: bool = True) -> bool:
    """Return whether two mathematical answers have the same value; `fast` has no effect."""
    del fast
    return grade_with(get_grader("math"), model_answer, [gt_answer]).correct


def boxed_reward_fn(
    model_response: str,
    gt_answer: Any,
    fast: bool = False,
    correct_reward: float = 1.0,
    incorrect_reward: float = 0.0,
) -> tuple[dict[str, bool], float]:
    r"""Grade the last `\boxed{}` of a reply; return whether there is one, and the reward."""
    answer = extract_answer(model_response)
    if answer is None:
        return {"formatted": False}, incorrect_reward
    golden = [str(item) for item in gt_answer] if isinstance(gt_answer, list) else [str(gt_answer)]
    correct = any(grade(answer, item, fast) for item in golden)
    return {"formatted": True}, correct_reward if correct else incorrect_reward

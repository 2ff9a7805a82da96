"""GEM's constants and functions for reading a reply."""

from __future__ import annotations

import re

from palestra.parsing import last_boxed

TERMINAL_STATE = "<｜TERMINAL_STATE｜>"  # noqa: RUF001  # the same characters as in GEM
_FENCED = re.compile(r"```(?:\w+)?\n(.*?)```", re.DOTALL)
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class LanguageGameReward:
    """Default rewards in the games."""

    success_reward: float = 1.0
    internal_step_reward: float = 0.0
    fail_reward: float = 0.0
    invalid_action_reward: float = 0.0
    format_error_reward: float = -0.1


def extract_last_boxed_answer(solution: str) -> str | None:
    r"""Return the content of the last `\boxed{}`, or None if there is none."""
    return last_boxed(solution)


def extract_last_tagged_answer(model_response: str) -> str | None:
    """Return the content of the last `<answer>` element, or None if there is none."""
    matches = _TAGGED.findall(model_response)
    return matches[-1].strip() if matches else None


def extract_code_from_model(model_response: str) -> str | None:
    """Return the content of the last fenced code block, or None if there is none."""
    matches = _FENCED.findall(model_response)
    return matches[-1].strip() if matches else None

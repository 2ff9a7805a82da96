"""Reflection: let a chat agent review its progress before acting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palestra.errors import BadValue

REFLECT = (
    "Before you act: what went wrong or right so far, and what will you do differently? Answer in a few sentences."
)
RESUME = "Now continue with the task."


def went_badly(info: Mapping[str, Any]) -> bool:
    """Return whether the last action was invalid, caused an error, or had a negative reward."""
    reward = info.get("reward")
    return bool(info.get("invalid") or info.get("error")) or (isinstance(reward, int | float) and reward < 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflection:
    """Reflect before the next action if `when(info)` is true for the last step, and also after every `every` turns.

    The instruction is appended to the observation. The reflection is a separate reply (a call of kind "reflect") that
    stays in the conversation; the `resume` message then requests the action. There is no reflection before the first
    action or if the context has no room for it.
    """

    when: Callable[[Mapping[str, Any]], bool] | None = went_badly
    every: int | None = None
    max_tokens: int = 256
    instruction: str = REFLECT
    resume: str = RESUME

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise BadValue(f"every must be at least 1, got {self.every}")
        if self.when is None and self.every is None:
            raise BadValue("Reflection needs when= or every=")

    def due(self, turn: int, info: Mapping[str, Any]) -> bool:
        """Return whether to reflect after `turn` actions, given the `info` of the last step."""
        if turn == 0:
            return False
        return (self.every is not None and turn % self.every == 0) or (self.when is not None and self.when(info))

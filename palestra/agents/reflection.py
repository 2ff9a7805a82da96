"""When an agent should look back before it acts, and what it is asked then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palestra.errors import BadValue

REFLECT = (
    "Before you act: what went wrong or right so far, and what will you do differently? Answer in a few sentences."
)
RESUME = "Now go on with the task."


def went_badly(info: Mapping[str, Any]) -> bool:
    """The environment calls the last action invalid or an error, or says that it cost something."""
    reward = info.get("reward")
    return bool(info.get("invalid") or info.get("error")) or (isinstance(reward, int | float) and reward < 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflection:
    """Reflect before the next action whenever `when(info)` holds for the last step, and after every `every` turns.

    The request follows the observation in the same message; the reflection is a reply of its own (a call of kind
    "reflect") and stays in the conversation; `resume` asks for the action. Never before the first action, and not where
    the window has no room for it.
    """

    when: Callable[[Mapping[str, Any]], bool] | None = went_badly
    every: int | None = None
    max_tokens: int = 256
    instruction: str = REFLECT
    resume: str = RESUME

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise BadValue(f"every is a number of turns from 1 up, got {self.every}")
        if self.when is None and self.every is None:
            raise BadValue("Reflect needs when= or every=, or it would never happen")

    def due(self, turn: int, info: Mapping[str, Any]) -> bool:
        """`turn`: how many actions were taken."""
        if turn == 0:
            return False
        return (self.every is not None and turn % self.every == 0) or (self.when is not None and self.when(info))

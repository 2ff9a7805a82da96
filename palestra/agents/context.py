"""Context policies: choose which turns of a long conversation stay in the prompt.

A conversation consists of its task (system prompt and first observation) and its turns (a reply and the observation
that followed). A policy returns how many of the latest turns to keep. All policies except LatestObservation also keep
the task. Dropping turns starts a new token sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from palestra.errors import BadValue

SUMMARY = (
    "Before you continue: earlier parts of this conversation will be removed. Write a short summary of what has "
    "happened so far and what you have learned that still matters for the task. Write nothing but the summary."
)


@dataclass(frozen=True, slots=True)
class FullHistory:
    """Keep all turns; the episode is truncated (ContextFull) when they fill the context."""

    def keep(self, sizes: Sequence[int], used: int) -> int:
        """Return how many of the latest turns to keep, given the tokens per turn (`sizes`) and in total (`used`)."""
        del used
        return len(sizes)


@dataclass(frozen=True, slots=True)
class LatestObservation:
    """Keep only the system prompt and the latest observation, for environments whose observations contain the history.

    Use it with the `History` wrapper. Every turn is a separate token sample.
    """

    def keep(self, sizes: Sequence[int], used: int) -> int:
        del sizes, used
        return 1


@dataclass(frozen=True, slots=True)
class LastTurns:
    """Keep the latest `turns` turns."""

    turns: int

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise BadValue(f"LastTurns must keep at least 1 turn, got {self.turns}")

    def keep(self, sizes: Sequence[int], used: int) -> int:
        del used
        return min(self.turns, len(sizes))


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """Keep the latest turns that fit in a prompt of `tokens`; None uses the context length minus the reply length.

    Truncation frees a `slack` fraction of the budget, so that it happens rarely: every truncation starts a new token
    sample and invalidates the engine's cache. The latest turn is kept even if it exceeds the budget.
    """

    tokens: int | None = None
    slack: float = 0.25

    def __post_init__(self) -> None:
        if self.tokens is not None and self.tokens < 1:
            raise BadValue(f"tokens must be at least 1, got {self.tokens}")
        if not 0 <= self.slack < 1:
            raise BadValue(f"slack must be in [0, 1), got {self.slack}")

    def keep(self, sizes: Sequence[int], used: int) -> int:
        turns = len(sizes)
        if self.tokens is None or used <= self.tokens:
            return turns
        goal = self.tokens * (1 - self.slack)
        while turns > 1 and used > goal:
            used -= sizes[len(sizes) - turns]
            turns -= 1
        return turns


@dataclass(frozen=True, slots=True)
class Summary:
    """Let the model summarize the conversation when it has more than `tokens` tokens or more than `turns` turns.

    The conversation continues from the task, the summary and the latest `recent` turns. If neither limit is set, the
    token limit is derived from the context length.
    """

    tokens: int | None = None
    turns: int | None = None
    recent: int = 1
    max_tokens: int = 256
    instruction: str = SUMMARY

    def __post_init__(self) -> None:
        if self.recent < 1:
            raise BadValue(
                f"recent must be at least 1, because the latest observation needs a reply; got {self.recent}"
            )
        if self.turns is not None and self.turns < self.recent:
            raise BadValue(f"turns must be at least recent ({self.recent}), got {self.turns}")
        if self.max_tokens < 1 or (self.tokens is not None and self.tokens < 1):
            raise BadValue("tokens and max_tokens must be at least 1")

    def keep(self, sizes: Sequence[int], used: int) -> int:
        full = (self.tokens is not None and used > self.tokens) or (self.turns is not None and len(sizes) > self.turns)
        return min(self.recent, len(sizes)) if full else len(sizes)


Context = FullHistory | LatestObservation | LastTurns | TokenBudget | Summary


def resolve_context(
    context: Context | str | None, *, window: int | None, reply: int, count: Callable[[str], int] | None
) -> Context:
    """Fill in missing limits in `context` from the context length `window`; `count` counts a text's tokens."""
    if context is None or isinstance(context, str):
        return FullHistory()
    if isinstance(context, TokenBudget | Summary) and context.tokens is not None and count is None:
        raise BadValue("this engine returns no tokens to count; use LastTurns(n) or Summary(turns=n)")
    if isinstance(context, TokenBudget) and context.tokens is None:
        if window is None or count is None:
            raise BadValue("TokenBudget needs tokens= or max_context=, because the engine's context length is unknown")
        return TokenBudget(tokens=max(1, window - reply), slack=context.slack)
    if isinstance(context, Summary) and context.tokens is None and context.turns is None:
        if window is None or count is None:
            raise BadValue(
                "Summary needs tokens=, turns= or max_context=, because the engine's context length is unknown"
            )
        return Summary(
            # Leave room for the summary and its instruction.
            tokens=max(1, window - reply - context.max_tokens - count(context.instruction)),
            recent=context.recent,
            max_tokens=context.max_tokens,
            instruction=context.instruction,
        )
    return context

"""What of a conversation the model still sees when there is more than it should read.

A conversation is its task (system text and first observation), which always stays, and turns: a reply and the
observation that followed. A policy says how many of the latest turns stay. Every cut begins a new token sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from palestra.errors import BadValue

SUMMARY = (
    "Before you go on: earlier parts of this conversation are about to be removed. Write a short summary of what has "
    "happened so far and what you have learnt that still matters for the task. Write nothing but the summary."
)


@dataclass(frozen=True, slots=True)
class FullHistory:
    """All turns; the episode is cut short (ContextFull) when they fill the model's window."""

    def keep(self, sizes: Sequence[int], used: int) -> int:
        """How many of the latest turns stay, given their tokens, and those of the whole prompt."""
        del used
        return len(sizes)


@dataclass(frozen=True, slots=True)
class LastTurns:
    """The latest `turns` turns."""

    turns: int

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise BadValue(f"LastTurns keeps at least 1 turn, got {self.turns}")

    def keep(self, sizes: Sequence[int], used: int) -> int:
        del used
        return min(self.turns, len(sizes))


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """As many of the latest turns as fit a prompt of `tokens`; None: of the model's window, less the reply.

    A cut frees `slack` of the budget at once, so that not every turn needs another: each costs a new sample and what an
    engine had cached. The latest turn stays even where it alone is over the budget.
    """

    tokens: int | None = None
    slack: float = 0.25

    def __post_init__(self) -> None:
        if self.tokens is not None and self.tokens < 1:
            raise BadValue(f"TokenBudget takes a number of tokens from 1 up, got {self.tokens}")
        if not 0 <= self.slack < 1:
            raise BadValue(f"slack lies in [0, 1), got {self.slack}")

    def keep(self, sizes: Sequence[int], used: int) -> int:
        kept = len(sizes)
        if self.tokens is None or used <= self.tokens:
            return kept
        goal = self.tokens * (1 - self.slack)
        while kept > 1 and used > goal:
            used -= sizes[len(sizes) - kept]
            kept -= 1
        return kept


@dataclass(frozen=True, slots=True)
class Summary:
    """When the prompt is over `tokens`, or more than `turns` turns long, the model sums up what went before.

    The conversation goes on from the task, the summary and the latest `recent` turns. With neither limit given, the
    model's window sets one.
    """

    tokens: int | None = None
    turns: int | None = None
    recent: int = 1
    max_tokens: int = 256
    instruction: str = SUMMARY

    def __post_init__(self) -> None:
        if self.recent < 1:
            raise BadValue(f"recent is at least 1: the latest observation has to be answered; got {self.recent}")
        if self.turns is not None and self.turns < self.recent:
            raise BadValue(f"a summary after {self.turns} turns cannot leave {self.recent} as they are")
        if self.max_tokens < 1 or (self.tokens is not None and self.tokens < 1):
            raise BadValue("Summary takes numbers of tokens from 1 up")

    def keep(self, sizes: Sequence[int], used: int) -> int:
        full = (self.tokens is not None and used > self.tokens) or (self.turns is not None and len(sizes) > self.turns)
        return min(self.recent, len(sizes)) if full else len(sizes)


Context = FullHistory | LastTurns | TokenBudget | Summary


def settled(
    context: Context | str | None, *, window: int | None, reply: int, count: Callable[[str], int] | None
) -> Context:
    """`context` with its open limits taken from the model's `window`; `count` counts tokens (None: it cannot)."""
    if context is None or isinstance(context, str):
        return FullHistory()
    if isinstance(context, TokenBudget | Summary) and context.tokens is not None and count is None:
        raise BadValue("this engine shows no tokens to count; use LastTurns(n) or Summary(turns=n)")
    if isinstance(context, TokenBudget) and context.tokens is None:
        if window is None or count is None:
            raise BadValue("TokenBudget needs tokens=..., as the engine's window is not known (or max_context=...)")
        return TokenBudget(tokens=max(1, window - reply), slack=context.slack)
    if isinstance(context, Summary) and context.tokens is None and context.turns is None:
        if window is None or count is None:
            raise BadValue("Summary needs tokens= or turns=, as the engine's window is not known (or max_context=...)")
        return Summary(
            tokens=max(1, window - reply - context.max_tokens - count(context.instruction)),  # room to ask for it
            recent=context.recent,
            max_tokens=context.max_tokens,
            instruction=context.instruction,
        )
    return context

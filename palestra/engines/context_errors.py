"""Recognize the errors with which inference servers reject a prompt that exceeds the context window."""

from __future__ import annotations

import re

MIN_REPLY = 16  # minimum number of tokens for a reply; with less room, the context counts as full

_TOO_LONG = re.compile(
    r"context.?(length|window)|maximum.{0,20}(length|tokens)|too (long|many tokens)|max_model_len|tokens exceed"
    r"|max_tokens must be at least 1, got -",
    re.IGNORECASE,
)
_CONTEXT = re.compile(  # number of tokens in the context window
    r"maximum (?:context|allowed) length (?:is|of)?\s*\(?(\d+)|context length(?: is only)? \(?(\d+)", re.IGNORECASE
)
_PROMPT = re.compile(  # number of tokens in the prompt, or a lower bound after "at least"
    r"\((\d+) in the (?:messages|prompt)|(\d+) input tokens|(\d+) tokens from the input|resulted in (\d+) tokens"
    r"|input(?: length)? \((\d+) tokens\)",
    re.IGNORECASE,
)


def is_context_overflow(status: int, error: str) -> bool:
    """Return whether a server rejected a request because the prompt and the reply do not fit into the context."""
    return status == 413 or (status in (400, 422) and _TOO_LONG.search(error) is not None)


def smaller_limit(error: str, limit: int) -> int | None:
    """Return a `max_tokens` below `limit` that leaves room for the prompt in an error message; None if none does."""
    context, prompt = _number(_CONTEXT, error), _number(_PROMPT, error)
    if context is None or prompt is None:
        return None
    room = context - prompt
    if "at least" in error:  # the server did not count all tokens in the prompt
        room = min(room, limit // 2)
    return room if MIN_REPLY <= room < limit else None


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return None if match is None else int(next(group for group in match.groups() if group is not None))

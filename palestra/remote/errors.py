"""A server's error -> the exception it stands for here."""

from __future__ import annotations

from palestra import errors
from palestra.errors import (
    BadValue,
    EnvFailed,
    EpisodeOver,
    PalestraError,
    ResetNeeded,
    SessionLost,
    UnknownEnv,
    UsageError,
)
from palestra.remote.protocol import Fault

BUSY = frozenset({"rate_limited", "quota", "capacity", "unavailable", "session_busy"})  # ask again, later
LOST = frozenset({"session_gone", "unknown_session"})


class NoAnswer(EnvFailed):
    """A request got no answer: whether it was carried out is not known."""


def error_of(fault: Fault, where: str) -> PalestraError:
    """As this process would have raised it; `where` names the server in what is told.

    Its `seq` is the number of the call, where the server counted it.
    """
    error = _error_of(fault, where)
    if isinstance(fault.seq, int):
        error.seq = fault.seq  # type: ignore[attr-defined]
    return error


def _error_of(fault: Fault, where: str) -> PalestraError:
    words = f"{fault.message} [{where}]"
    if fault.code == "episode_over":
        return EpisodeOver(fault.message)
    if fault.code == "reset_needed":
        return ResetNeeded(fault.message)
    if fault.code == "unknown_env":
        return UnknownEnv(words)
    if fault.code in ("bad_value", "bad_request", "too_large"):
        kind = getattr(errors, fault.kind, BadValue) if fault.kind else BadValue
        known = isinstance(kind, type) and issubclass(kind, UsageError)
        return kind(words) if known else BadValue(words)
    if fault.code in ("unauthorized", "wrong_host"):
        return BadValue(f"{words}: give the server's token as token=..., or in PALESTRA_TOKEN")
    if fault.code in LOST:
        lost = SessionLost(words)
        lost.cause = fault.cause or "unknown"
        return lost
    failed = EnvFailed(f"{words} ({fault.code})")
    failed.boundary = fault.boundary or "env"
    return failed

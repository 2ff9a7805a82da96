"""Convert error responses from a server into exceptions."""

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

# Error codes after which the client retries.
BUSY = frozenset({"rate_limited", "quota", "capacity", "unavailable", "draining", "session_busy"})
LOST = frozenset({"session_gone", "unknown_session"})


class NoResponse(EnvFailed):
    """Raised if a request received no response, so that it is unknown whether the server executed it."""


def error_from(fault: Fault, server: str) -> PalestraError:
    """Return the exception that a local environment would have raised.

    If the server assigned a sequence number to the call, it is stored in the exception's `seq` attribute.
    """
    error = _error_from(fault, server)
    if isinstance(fault.seq, int):
        error.seq = fault.seq  # type: ignore[attr-defined]
    return error


def _error_from(fault: Fault, server: str) -> PalestraError:
    message = f"{fault.message} [{server}]"
    if fault.code == "episode_over":
        return EpisodeOver(fault.message)
    if fault.code == "reset_needed":
        return ResetNeeded(fault.message)
    if fault.code == "unknown_env":
        return UnknownEnv(message)
    if fault.code in ("bad_value", "bad_request", "too_large"):
        kind = getattr(errors, fault.kind, BadValue) if fault.kind else BadValue
        is_usage_error = isinstance(kind, type) and issubclass(kind, UsageError)
        return kind(message) if is_usage_error else BadValue(message)
    if fault.code in ("unauthorized", "wrong_host"):
        return BadValue(f"{message}; pass the server's token as token=..., or set PALESTRA_TOKEN")
    if fault.code in LOST:
        lost = SessionLost(message)
        lost.cause = fault.cause or "unknown"
        return lost
    failed = EnvFailed(f"{message} ({fault.code})")
    failed.boundary = fault.boundary or "env"
    return failed

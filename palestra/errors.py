"""Every exception Palestra raises on purpose.

PalestraError
├── UsageError                 the caller's mistake; the message names the fix
│   ├── UnknownEnv             no environment has that id                (also a ValueError)
│   ├── BadEnvId               the id does not follow the grammar        (also a ValueError)
│   ├── AlreadyRegistered      the id is taken                           (also a ValueError)
│   ├── UnknownKeyword         a constructor does not know that keyword  (also a TypeError)
│   ├── BadValue               a keyword or argument has a wrong value   (also a ValueError)
│   ├── MissingExtra           an optional package is not installed      (also an ImportError)
│   ├── DataMissing            rows of a task cannot be had              (also a FileNotFoundError)
│   ├── ResetNeeded            step before the first reset               (also a RuntimeError)
│   ├── EpisodeOver            step after the last step                  (also a RuntimeError)
│   ├── NoSandbox              this machine cannot isolate programs      (also a RuntimeError)
│   └── ContextFull            a conversation outgrew the model's window (also a ValueError)
├── LawBroken                  check_env found an unsound environment    (also an AssertionError)
└── InfrastructureError        something other than the agent failed: recorded, retried, never a reward
    ├── EnvFailed              an environment, or what it runs on, broke
    │   └── SessionLost        a server no longer has the session; `cause` says why
    ├── EngineFailed           a model, or the server that runs it, broke
    ├── ToolFailed             a tool, or what it runs on, broke
    ├── ParsingFailed          what an outside system answered could not be read
    └── StoreFailed            a file could not be written
"""

from __future__ import annotations


class PalestraError(Exception):
    """Root of the tree."""


class UsageError(PalestraError):
    """The caller's mistake; the message names the fix."""


class UnknownEnv(UsageError, ValueError):
    """No environment has that id."""


class BadEnvId(UsageError, ValueError):
    """The id does not follow `family:Name[-vN][-variant]`."""


class AlreadyRegistered(UsageError, ValueError):
    """The id is taken."""


class UnknownKeyword(UsageError, TypeError):
    """A constructor does not know that keyword."""


class BadValue(UsageError, ValueError):
    """A keyword or argument has a value that cannot work."""


class MissingExtra(UsageError, ImportError):
    """An optional package is not installed."""


class DataMissing(UsageError, FileNotFoundError):
    """The rows a task asks about cannot be had; the message says where they were looked for."""


class ResetNeeded(UsageError, RuntimeError):
    """`step` was called before the first `reset`."""


class EpisodeOver(UsageError, RuntimeError):
    """`step` was called after the last step of an episode."""


class NoSandbox(UsageError, RuntimeError):
    """This machine cannot isolate programs; the message says what is missing."""


class ContextFull(UsageError, ValueError):
    """A conversation outgrew the model's window; a rollout records that as a truncation."""


class LawBroken(PalestraError, AssertionError):
    """`check_env` found an unsound environment."""

    def __init__(self, law: str, defect: str, reproduce: str) -> None:
        super().__init__(law, defect, reproduce)  # as args, so that the error survives pickling
        self.law = law
        self.defect = defect
        self.reproduce = reproduce

    def __str__(self) -> str:
        return f"[{self.law}] {self.defect}\nTo reproduce:\n{self.reproduce}"


class InfrastructureError(PalestraError):
    """Something other than the agent failed; `boundary` says where."""

    boundary = "infrastructure"


class EnvFailed(InfrastructureError):
    """An environment, or what it runs on, broke."""

    boundary = "env"


class SessionLost(EnvFailed):
    """A server no longer has the session: its worker died, its lease ran out, it was closed. `cause` says which."""

    cause = "unknown"


class EngineFailed(InfrastructureError):
    """A model, or the server that runs it, broke."""

    boundary = "engine"


class ToolFailed(InfrastructureError):
    """A tool, or what it runs on, broke."""

    boundary = "tool"


class ParsingFailed(InfrastructureError):
    """What an outside system answered could not be read."""

    boundary = "parsing"


class StoreFailed(InfrastructureError):
    """A file could not be written."""

    boundary = "store"

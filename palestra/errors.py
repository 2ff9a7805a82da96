"""All exceptions that Palestra defines.

PalestraError
├── UsageError                 a mistake by the caller; the message explains how to fix it
│   ├── UnknownEnv             no environment has this name              (also a ValueError)
│   ├── BadEnvId               the name matches no known form            (also a ValueError)
│   ├── AlreadyRegistered      another environment has this id           (also a ValueError)
│   ├── UnknownKeyword         unexpected keyword argument               (also a TypeError)
│   ├── BadValue               an argument or setting has a wrong value  (also a ValueError)
│   ├── MissingExtra           an optional package is not installed      (also an ImportError)
│   ├── DataMissing            a task's data is not available            (also a FileNotFoundError)
│   ├── ResetNeeded            step() was called before reset()          (also a RuntimeError)
│   ├── EpisodeOver            step() was called after the last step     (also a RuntimeError)
│   ├── NoSandbox              this machine cannot isolate programs      (also a RuntimeError)
│   └── ContextFull            a prompt exceeds the model's context      (also a ValueError)
├── ConformanceError           an environment or server violates the contract  (also an AssertionError)
├── TrainingDiverged           training stopped because gradients or KL exploded  (also a RuntimeError)
└── InfrastructureError        a failure not caused by the agent: recorded and retried, never scored as a reward
    ├── EnvFailed              an environment, or a service it depends on, failed
    │   └── SessionLost        a server no longer has the session; `cause` gives the reason
    ├── EngineFailed           a model or inference server failed
    ├── OutOfMemory            a GPU's memory or the main memory is not enough for training  (also a MemoryError)
    ├── ToolFailed             a tool, or a service it depends on, failed
    ├── ParsingFailed          the reply from an external system could not be parsed
    └── StoreFailed            a file could not be written
"""

from __future__ import annotations


class PalestraError(Exception):
    """Base class of all exceptions in this module."""


class UsageError(PalestraError):
    """A mistake by the caller; the message explains how to fix it."""


class UnknownEnv(UsageError, ValueError):
    """No environment has this name."""


class BadEnvId(UsageError, ValueError):
    """The name does not have a valid form (see docs/environment-names.md)."""


class AlreadyRegistered(UsageError, ValueError):
    """Another environment is registered under this id."""


class UnknownKeyword(UsageError, TypeError):
    """A constructor was called with an unexpected keyword argument."""


class BadValue(UsageError, ValueError):
    """An argument or setting has an invalid value."""


class MissingExtra(UsageError, ImportError):
    """An optional package is not installed; the message contains the pip command that installs it."""


class DataMissing(UsageError, FileNotFoundError):
    """A task's data is not available; the message lists the locations that were searched."""


class ResetNeeded(UsageError, RuntimeError):
    """`step` was called before the first `reset`."""


class EpisodeOver(UsageError, RuntimeError):
    """`step` was called after the last step of an episode."""


class NoSandbox(UsageError, RuntimeError):
    """This machine cannot isolate programs; the message names what is missing."""


class ContextFull(UsageError, ValueError):
    """A prompt exceeds the model's context window; rollouts record this as a truncation."""


class ConformanceError(PalestraError, AssertionError):
    """An environment violates an invariant that `check_env` tests, or a server violates its protocol."""

    def __init__(self, invariant: str, defect: str, reproduce: str) -> None:
        # The exception can be pickled only if all arguments are passed on.
        super().__init__(invariant, defect, reproduce)
        self.invariant = invariant
        self.defect = defect
        self.reproduce = reproduce

    def __str__(self) -> str:
        return f"[{self.invariant}] {self.defect}\nTo reproduce:\n{self.reproduce}"


class TrainingDiverged(PalestraError, RuntimeError):
    """Training stopped because the gradient or the KL divergence exploded; the last checkpoint is still valid."""


class InfrastructureError(PalestraError):
    """A failure that the agent did not cause; `boundary` names the component that failed."""

    boundary = "infrastructure"


class EnvFailed(InfrastructureError):
    """An environment, or a service it depends on, failed."""

    boundary = "env"


class SessionLost(EnvFailed):
    """A server closed the session, its worker exited, or its lease expired; `cause` contains the reason."""

    cause = "unknown"


class EngineFailed(InfrastructureError):
    """A model or inference server failed."""

    boundary = "engine"


class OutOfMemory(InfrastructureError, MemoryError):
    """A GPU's memory or the main memory is not enough for training."""

    boundary = "learner"


class ToolFailed(InfrastructureError):
    """A tool, or a service it depends on, failed."""

    boundary = "tool"


class ParsingFailed(InfrastructureError):
    """The reply from an external system could not be parsed."""

    boundary = "parsing"


class StoreFailed(InfrastructureError):
    """A file could not be written."""

    boundary = "store"


def not_running(ending: str | None) -> ResetNeeded | EpisodeOver:
    """Return the error for a step outside an episode; `ending` is "reset" before the first episode."""
    if ending == "reset":
        return ResetNeeded("call reset() before the first step()")
    return EpisodeOver(f"the episode has ended ({ending}); call reset() to start another one")

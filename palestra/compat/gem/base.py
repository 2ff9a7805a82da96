"""GEM's base classes: `Env` for environments and `EnvWrapper` for wrappers."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from types import FunctionType
from typing import Any, TypeVar

from palestra.core import Env as PalestraEnv
from palestra.core import Reset, Wrapper
from palestra.types import Step

ObsType = TypeVar("ObsType")
ActType = TypeVar("ActType")


class Env(PalestraEnv):
    """Base class of environments written for GEM, whose `reset` takes only a seed and calls `super().reset(seed)`.

    All of Palestra's environments are instances of this class.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _accept_options(cls)

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        # `issubclass(other, PalestraEnv)` would call this method again, because this class is derived from PalestraEnv.
        return (cls is Env and PalestraEnv in other.__mro__) or NotImplemented

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:  # noqa: ARG002
        """Seed the generators for a new episode, including the global ones, which GEM's environments use."""
        seed_everything(self.start_episode(seed))
        return "", {}

    def step(self, action: str) -> Step:  # noqa: ARG002
        raise TypeError(f"{type(self).__name__} does not define step(action)")


class EnvWrapper(Wrapper):
    """Base class of wrappers written for GEM, which override `reset(seed)` and `step(action)`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _accept_options(cls)

    def _inner_state(self) -> dict[str, Any]:
        """Return the state of the wrapped environment, which is a copy if it has no `get_state`."""
        if hasattr(self.env, "get_state"):
            return dict(self.env.get_state())
        return {"env": self.env.fork()}

    def _set_inner_state(self, state: dict[str, Any]) -> None:
        if hasattr(self.env, "set_state"):
            self.env.set_state(state)
        else:
            self.env = state["env"].fork()


def seed_everything(seed: int | None) -> None:
    """Seed Python's and numpy's global generators; None selects a random seed."""
    random.seed(seed)
    try:
        import numpy as np
    except ImportError:
        return
    np.random.seed(None if seed is None else seed % 2**32)


def _accept_options(cls: type) -> None:
    """Let a `reset` method without an `options` parameter accept `options`, and add the episode's seed to its info."""
    method = cls.__dict__.get("reset")
    if isinstance(method, FunctionType) and "options" not in signature(method).parameters:
        cls.reset = _with_options(method)  # type: ignore[attr-defined]  # every Env has this method


def _with_options(method: Callable[..., Any]) -> Callable[..., Any]:
    parameters = signature(method).parameters
    takes_any = any(item.kind is Parameter.VAR_KEYWORD for item in parameters.values())

    @wraps(method)
    def reset(self: Any, seed: int | None = None, options: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        extra = {**(options or {}), **kwargs}
        unknown = [] if takes_any else [name for name in extra if name not in parameters]
        if unknown:
            raise TypeError(f"{type(self).__name__}.reset has no parameter {', '.join(unknown)}")
        result = method(self, seed=seed, **extra)
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            used = getattr(self.unwrapped, "seed", None)
            if isinstance(used, int):
                result[1].setdefault("seed", used)
        return result

    return reset

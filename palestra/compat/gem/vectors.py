"""GEM's vector environments, implemented with `palestra.make_vec`; rewards and flags are numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

from palestra.core import Env
from palestra.errors import BadValue
from palestra.types import Observation
from palestra.vector import make_vec
from palestra.vector.make import BackendName
from palestra.workers.types import Autoreset

Array = Any  # numpy.ndarray, or a list if numpy is not installed


class AutoresetMode(Enum):
    """Step in which a finished environment starts its next episode."""

    NEXT_STEP = "NextStep"
    SAME_STEP = "SameStep"


class VectorEnv:
    """Vector environment. Actions are a list for all environments, or a dict `{index: action}` for some of them."""

    backend: ClassVar[BackendName] = "sync"

    def __init__(
        self,
        env_ids: Sequence[str],
        env_fns: Sequence[Callable[[], Env]],
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        self.env_ids = list(env_ids)
        self.env_fns = list(env_fns)
        self.num_envs = len(self.env_fns)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        autoreset: Autoreset = "next_step" if self.autoreset_mode is AutoresetMode.NEXT_STEP else "same_step"
        self._vector = make_vec(self.env_fns, backend=self.backend, autoreset=autoreset)

    @property
    def envs(self) -> list[Env]:
        """The environments, with their wrappers."""
        return self._vector.envs

    @property
    def unwrapped(self) -> VectorEnv:
        return self

    def reset(
        self, seed: int | Sequence[int] | None = None, **kwargs: Any
    ) -> tuple[list[Observation], list[dict[str, Any]]]:
        """Start an episode in every environment; `env0_kwargs={...}` passes options to the first one's `reset`."""
        seeds = [seed + index for index in range(self.num_envs)] if isinstance(seed, int) else seed
        if seeds is not None and len(seeds) != self.num_envs:
            raise BadValue(f"`seed` must contain {self.num_envs} seeds, got {len(seeds)}")
        options = {index: kwargs.pop(f"env{index}_kwargs", None) for index in range(self.num_envs)}
        if kwargs:
            raise BadValue(f"unknown arguments of reset: {', '.join(kwargs)}")
        if not any(options.values()):
            return self._vector.reset(seeds)
        observations: list[Observation] = []
        infos: list[dict[str, Any]] = []
        for index in range(self.num_envs):
            own = None if seeds is None else [seeds[index]]
            first, info = self._vector.reset(own, options=_index_option(options[index]), indices=[index])
            observations += first
            infos += info
        return observations, infos

    def step(
        self, actions: Sequence[str] | Mapping[int, str]
    ) -> tuple[list[Observation], Array, Array, Array, list[dict[str, Any]]]:
        """Take one action in every environment, or only in those with an action, and wait for all results."""
        given = dict(actions) if isinstance(actions, Mapping) else list(actions)
        result = self._vector.step(given)
        return (
            list(result.observations),
            _array(result.rewards, "float64"),
            _array(result.terminated, "bool"),
            _array(result.truncated, "bool"),
            list(result.infos),
        )

    def close(self) -> None:
        """Close all environments."""
        self._vector.close()

    def __len__(self) -> int:
        return self.num_envs


class SyncVectorEnv(VectorEnv):
    """Vector environment that steps its environments one after the other."""


class AsyncVectorEnv(VectorEnv):
    """Vector environment that steps its environments in threads."""

    backend = "thread"


def _index_option(options: dict[str, Any] | None) -> dict[str, Any] | None:
    if not options:
        return None
    return {("index" if name == "idx" else name): value for name, value in options.items()}


def _array(values: Sequence[Any], dtype: str) -> Array:
    try:
        import numpy as np
    except ImportError:
        return list(values)
    return np.array(values, dtype=dtype)

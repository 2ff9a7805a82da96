"""Provide environments for a rollout: in this process, in threads, in worker processes or on a Ray cluster."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

from palestra.core import Env, Reset, Wrapper
from palestra.errors import BadValue, EnvFailed, UsageError
from palestra.machine import usable_cores
from palestra.registry import EnvFactory
from palestra.rollout.types import Task
from palestra.threads import run_in_thread
from palestra.vector.base import VectorEnv
from palestra.vector.make import make_vec
from palestra.vector.sub_env import SubEnv
from palestra.workers.task_host import TaskHost
from palestra.workers.wire import dump_factories

EnvBackend: TypeAlias = Literal["inline", "thread", "process", "ray"]
ENV_BACKENDS: Final = ("inline", "thread", "process", "ray")
CLOSE_TIMEOUT = 2.0  # maximum seconds to wait for `close`, so that a process with hung environments ends soon


class EnvProvider(ABC):
    """Source of environments for concurrent episodes.

    `step_timeout` and `reset_timeout` are enforced by `run_episode`; they are None if the workers enforce timeouts.
    """

    step_timeout: float | None = None
    reset_timeout: float | None = None

    @abstractmethod
    async def acquire(self, factory: EnvFactory) -> Env:
        """Wait until an environment is available and return it for exclusive use."""

    @abstractmethod
    async def release(self, env: Env, *, reusable: bool) -> None:
        """Return an environment to the provider. If it is not `reusable`, no later episode runs in it."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close all environments and stop all workers. Idempotent."""

    def idle_env(self, factory: EnvFactory) -> Env | None:  # noqa: ARG002  # used by subclasses
        """Return an idle environment in this process that can prepare a later episode, or None."""
        return None


class InlineProvider(EnvProvider):
    """Runs environments in this process, and reuses those whose last episode did not fail."""

    def __init__(self, *, step_timeout: float | None = None, reset_timeout: float | None = None) -> None:
        self.step_timeout = step_timeout
        self.reset_timeout = step_timeout if reset_timeout is None else reset_timeout
        self._idle: dict[str, list[Env]] = {}
        self._open: dict[int, tuple[Env, str]] = {}  # all open environments with their factories' keys, by `id`

    async def acquire(self, factory: EnvFactory) -> Env:
        key = factory.key
        idle = self._idle.get(key)
        if idle:
            return idle.pop()
        env = await self._build(factory)
        self._open[id(env)] = (env, key)
        return env

    async def _build(self, factory: EnvFactory) -> Env:
        if self.reset_timeout is None:
            return factory()
        try:
            async with asyncio.timeout(self.reset_timeout):
                return await run_in_thread(factory)  # a call on the event loop could not be interrupted
        except TimeoutError as err:
            raise EnvFailed(f"building the environment took longer than {self.reset_timeout:g} s") from err

    async def release(self, env: Env, *, reusable: bool) -> None:
        if reusable:
            self._idle.setdefault(self._open[id(env)][1], []).append(env)
        else:
            self._open.pop(id(env), None)
            await _close(env)

    def idle_env(self, factory: EnvFactory) -> Env | None:
        idle = self._idle.get(factory.key)
        return idle[-1] if idle else None

    async def aclose(self) -> None:
        envs, self._open = [env for env, _ in self._open.values()], {}
        self._idle.clear()
        await asyncio.gather(*(_close(env) for env in envs if _has_resources(env)))


class VectorProvider(EnvProvider):
    """Runs environments in the sub-environments of a vector environment, each of which can run any task.

    If a call exceeds its timeout, exhausts memory or kills its worker, only its own episode raises EnvFailed. The first
    `acquire` creates the vector environment; if all of it fails, a later `acquire` creates a new one.
    """

    def __init__(
        self,
        backend: EnvBackend,
        *,
        capacity: int,
        workers: int | None = None,
        step_timeout: float | None = None,
        reset_timeout: float | None = None,
    ) -> None:
        self.backend = backend
        self.capacity = capacity
        self._workers = workers or usable_cores()
        self._limits = {"step_timeout": step_timeout, "reset_timeout": reset_timeout}
        self._vector: VectorEnv | None = None
        self._pickled: dict[str, bytes] = {}  # factory key -> pickled factory
        self._stale: set[int] = set()  # sub-environments that must build a new environment
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False

    async def acquire(self, factory: EnvFactory) -> Env:
        key = factory.key
        if key not in self._pickled:
            self._pickled[key] = dump_factories([factory])
        while True:
            if self._closed:
                raise EnvFailed("this environment provider is closed")
            vector = self._open_vector()
            if vector.available:
                break
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        sub_env = vector.acquire()
        rebuild = sub_env.index in self._stale
        self._stale.discard(sub_env.index)
        return _TaskEnv(sub_env, factory, key, self._pickled[key], rebuild)

    def _open_vector(self) -> VectorEnv:
        if self._vector is not None and self._vector.error is not None:
            self._vector.close()
            self._vector = None
        if self._vector is None:
            self._stale.clear()
            threads = {"threads": self.capacity} if self.backend == "thread" else {"workers": self._workers}
            self._vector = make_vec(
                EnvFactory("rollout", builder=TaskHost),
                num_envs=self.capacity,
                backend=self.backend,  # type: ignore[arg-type]  # not "inline"
                autoreset="disabled",
                max_failures_in_a_row=1_000_000,  # effectively unlimited, because the rollout counts failures
                **self._limits,  # type: ignore[arg-type]
                **threads,  # type: ignore[arg-type]
            )
        return self._vector

    async def release(self, env: Env, *, reusable: bool) -> None:
        if not isinstance(env, _TaskEnv):
            raise BadValue(f"release takes an environment that this provider returned, got {env!r}")
        sub_env = env.sub_env
        if not reusable and sub_env.vector is self._vector:
            self._stale.add(sub_env.index)
        sub_env.close()
        while self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                break
        if env.usage_error is not None:
            raise env.usage_error

    async def aclose(self) -> None:
        self._closed = True
        vector, self._vector = self._vector, None
        if vector is not None:
            await vector.aclose()


class _TaskEnv(Wrapper):
    """A sub-environment during one episode; `reset` sends the environment's factory to the worker."""

    def __init__(self, env: SubEnv, factory: EnvFactory, key: str, pickled: bytes, rebuild: bool) -> None:
        super().__init__(env)
        self.sub_env = env
        self.spec = factory.spec
        self.usage_error: UsageError | None = None
        self._request = {"key": key, "factory": pickled, "rebuild": rebuild}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self._checked(self.env.reset(seed=seed, options={**self._request, "options": options}))

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self._checked(await self.env.areset(seed=seed, options={**self._request, "options": options}))

    def _checked(self, result: Reset) -> Reset:
        error = result[1].get("usage_error")
        if isinstance(error, UsageError):
            self.usage_error = error  # caused by the caller, so `release` raises it instead of recording a failure
            raise error
        return result


def create_env_provider(
    backend: EnvBackend = "inline",
    *,
    capacity: int,
    workers: int | None = None,
    step_timeout: float | None = None,
    reset_timeout: float | None = None,
) -> EnvProvider:
    """Return an environment provider that runs up to `capacity` environments at a time.

    Args:
        backend: `inline` runs environments in this process; `thread` in threads in this process, for environments that
            wait for I/O; `process` in worker processes, for environments that are CPU-bound or may hang or crash;
            `ray` in actors on a running Ray cluster.
        capacity: Maximum number of environments in use at a time (all backends but `inline`).
        workers: Number of worker processes or actors (default: the number of CPUs).
        step_timeout: Maximum number of seconds per step; a longer step fails its episode with an infrastructure error.
            The `process` backend also kills the worker, which frees a hung environment's resources.
        reset_timeout: Maximum number of seconds per reset, including the construction of the environment (default:
            `step_timeout`).
    """
    if backend not in ENV_BACKENDS:
        raise BadValue(f"env_backend must be one of {', '.join(ENV_BACKENDS)}; got {backend!r}")
    if workers is not None and workers < 1:
        raise BadValue(f"env_workers must be at least 1, got {workers!r}")
    for name, value in (("step_timeout", step_timeout), ("reset_timeout", reset_timeout)):
        if value is not None and not value > 0:
            raise BadValue(f"{name} must be greater than 0, or None for no limit; got {value!r}")
    if backend == "inline":
        return InlineProvider(step_timeout=step_timeout, reset_timeout=reset_timeout)
    return VectorProvider(
        backend, capacity=capacity, workers=workers, step_timeout=step_timeout, reset_timeout=reset_timeout
    )


class TaskFactories:
    """Environment factories for tasks, one per combination of environment name and keyword arguments."""

    def __init__(self, source: Callable[..., Env] | None, wrappers: Sequence[Any]) -> None:
        self._source = source
        self._wrappers = tuple(wrappers)
        self._factories: dict[str, EnvFactory] = {}
        self._last: tuple[str, Any, EnvFactory] | None = None  # name, keyword arguments and factory of the last task

    def of(self, task: Task) -> EnvFactory:
        """Return the environment factory for a task. Tasks that can share an environment have the same factory."""
        last = self._last
        if last is not None and last[1] is task.kwargs and last[0] == task.env_id:
            return last[2]
        key = f"{task.env_id} {sorted(task.kwargs.items(), key=repr)!r}"
        factory = self._factories.get(key)
        if factory is None:
            source = task.env_id if self._source is None else self._source
            factory = EnvFactory.of(source, kwargs=task.kwargs, wrappers=self._wrappers)
            self._factories[key] = factory
        self._last = task.env_id, task.kwargs, factory
        return factory


def _has_resources(env: Env) -> bool:
    """Return whether closing an environment does anything; most games inherit a `close` that does nothing."""
    while isinstance(env, Wrapper):
        if type(env).close is not Wrapper.close or type(env).aclose is not Wrapper.aclose:
            return True
        env = env.env
    return type(env).close is not Env.close or type(env).aclose is not Env.aclose


async def _close(env: Env) -> None:
    """Close an environment and ignore errors, because it has already failed or is no longer needed."""
    if not _has_resources(env):
        return
    with suppress(Exception, SystemExit):
        async with asyncio.timeout(CLOSE_TIMEOUT):  # `wait_for` in Python 3.11 can swallow a cancellation
            await (run_in_thread(env.close) if env.inline else env.aclose())

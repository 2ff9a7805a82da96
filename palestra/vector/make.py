"""Create vector environments from env names, keyword arguments, wrappers and a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

from palestra.core import Env
from palestra.errors import BadValue
from palestra.machine import usable_cores
from palestra.registry import EnvFactory
from palestra.registry.specs import split_query
from palestra.seeding import check_seed, child_seed, fresh_seed
from palestra.vector.backend import Backend, SyncBackend
from palestra.vector.base import VectorEnv
from palestra.workers.types import AUTORESETS, Autoreset, Limits
from palestra.wrappers.factory import WrapperSource, resolve_wrappers

BackendName: TypeAlias = Literal["sync", "thread", "process", "ray"]
BACKENDS = ("sync", "thread", "process", "ray")
Source: TypeAlias = str | Callable[..., Env]
# Keyword arguments for RemoteBackend. All others are passed to the env.
_REMOTE_OPTIONS = ("token", "patience", "lease")


def make_vec(
    env_ids: Source | Sequence[Source],
    wrappers: str | Iterable[WrapperSource] | None = None,
    vec_kwargs: Sequence[Mapping[str, Any]] | None = None,
    async_mode: bool = False,
    seed: int | None = 0,
    *,
    num_envs: int | None = None,
    backend: BackendName | None = None,
    workers: int | None = None,
    threads: int | None = None,
    autoreset: Autoreset = "same_step",
    step_timeout: float | None = None,
    reset_timeout: float | None = None,
    memory_limit: int | None = None,
    max_restarts: int = 64,
    max_failures_in_a_row: int = 16,
    ray_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> VectorEnv:
    """Create a vector environment, which runs several environments together.

    Args:
        env_ids: Name of an env, callable that creates an env, or a list with one of these per env. URLs on a Palestra
            server create the envs on this server.
        wrappers: Wrappers to apply to every env: callables, names, or pairs like ("Horizon", {"turns": 5}).
        vec_kwargs: Keyword arguments for the individual envs, as a list with one mapping per env.
        async_mode: Alias for `backend="thread"`, for compatibility with GEM.
        seed: Seed from which all episode seeds are derived. The result is the same on every backend. None selects a
            random seed.
        num_envs: Number of envs to create if `env_ids` is not a list.
        backend: `sync` runs the envs in the calling thread, `thread` in up to `threads` threads, `process` in `workers`
            processes with up to `threads` threads each, and `ray` in `workers` actors that are created with
            `ray_options` and run their envs in a separate process. With `process` and `threads=1`, the envs run in the
            workers' main threads.
        autoreset: When to start the next episode, as in Gymnasium: `same_step`, `next_step` or `disabled`.
        step_timeout: Maximum seconds per step or call. If one takes longer, it fails and its env is replaced.
        reset_timeout: Maximum seconds per reset, including the construction of the env (default: `step_timeout`).
        memory_limit: Maximum memory per worker process in bytes.
        max_restarts: Maximum number of worker replacements. One more is allowed after every hundred results.
        max_failures_in_a_row: Maximum number of consecutive failures per env, beyond which EnvFailed is raised.
        kwargs: Keyword arguments for every env.

    If a step raises an exception, exceeds its timeout or the memory limit, or terminates its worker, only its own env
    fails. The result of the step then has `info["failure"]`, reward NaN and `truncated=True`, and the env is replaced.
    """
    if backend is None:
        backend = "thread" if async_mode else "sync"
    elif backend not in BACKENDS:
        matches = get_close_matches(str(backend), BACKENDS, n=1)
        hint = f" Did you mean {matches[0]}?" if matches else ""
        raise BadValue(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}.{hint}")
    if autoreset not in AUTORESETS:
        raise BadValue(f"autoreset must be one of {', '.join(AUTORESETS)}; got {autoreset!r}")
    limits = check_limits(step_timeout, reset_timeout, memory_limit, max_restarts)
    for name, count in (("workers", workers), ("threads", threads)):
        if count is not None and count < 1:
            raise BadValue(f"{name} must be at least 1, got {count!r}")
    sources = _sources(env_ids, num_envs)
    if vec_kwargs is not None and len(vec_kwargs) != len(sources):
        raise BadValue(f"vec_kwargs must contain one mapping per env: expected {len(sources)}, got {len(vec_kwargs)}")
    seed = fresh_seed() if seed is None else check_seed(seed)
    remote = any(map(_on_palestra_server, sources))
    remote_options: dict[str, Any] = {}
    if remote:
        if not all(map(_on_palestra_server, sources)):
            raise BadValue("make_vec cannot combine envs on servers with local envs; pass only URLs or no URLs")
        if wrappers or backend != "sync":
            raise BadValue("envs on a server do not support `wrappers` and `backend`; omit these arguments")
        remote_options = {name: kwargs.pop(name) for name in _REMOTE_OPTIONS if name in kwargs}
        kwargs = {**kwargs.pop("kwargs", {}), **kwargs}
    factories, roots = _factories(sources, resolve_wrappers(wrappers), vec_kwargs, kwargs, seed)
    vector_backend: Backend
    if remote:
        from palestra.vector.remote import RemoteBackend

        urls = [split_query(factory.name) for factory in factories]
        vector_backend = RemoteBackend(
            [url for url, _ in urls],
            [{**query, **factory.kwargs} for (_, query), factory in zip(urls, factories, strict=True)],
            roots,
            autoreset,
            step_timeout=step_timeout,
            **remote_options,
        )
    else:
        vector_backend = create_backend(backend, factories, roots, autoreset, limits, workers, threads, ray_options)
    return VectorEnv(
        vector_backend,
        factories=factories,
        seed=seed,
        autoreset=autoreset,
        backend_name="remote" if remote else backend,
        failures_in_a_row=max_failures_in_a_row,
    )


def check_limits(
    step_timeout: float | None, reset_timeout: float | None, memory_limit: int | None, max_restarts: int
) -> Limits:
    """Check the limits of a vector environment and return them as `Limits`."""
    for name, value in (
        ("step_timeout", step_timeout),
        ("reset_timeout", reset_timeout),
        ("memory_limit", memory_limit),
    ):
        if value is not None and not value > 0:
            raise BadValue(f"{name} must be above 0, or None for no limit; got {value!r}")
    return Limits(
        step_timeout=step_timeout,
        reset_timeout=step_timeout if reset_timeout is None else reset_timeout,
        memory=memory_limit,
        restarts=max_restarts,
    )


def create_backend(
    name: str,
    factories: Sequence[EnvFactory],
    roots: Sequence[int],
    autoreset: Autoreset,
    limits: Limits,
    workers: int | None,
    threads: int | None,
    ray_options: Mapping[str, Any] | None,
) -> Backend:
    if name == "sync":
        return SyncBackend(factories, roots, autoreset, limits)
    if name == "thread":
        from palestra.vector.thread import ThreadBackend

        return ThreadBackend(factories, roots, autoreset, limits, threads or workers or len(factories))
    if name == "process":
        from palestra.vector.process import ProcessBackend

        count = workers or usable_cores()
        return ProcessBackend(factories, roots, autoreset, limits, workers=count, threads=threads)
    from palestra.vector.ray import RayBackend

    options = ray_options or {}
    return RayBackend(factories, roots, autoreset, limits, workers=workers, threads=threads, options=options)


def _on_palestra_server(source: Source) -> bool:
    """Return whether `source` is a URL on a Palestra server. URLs on other servers have a prefix such as `openenv+`."""
    scheme, separator, _ = source.partition("://") if isinstance(source, str) else ("", "", "")
    return bool(separator) and "+" not in scheme


def _sources(env_ids: Source | Sequence[Source], num_envs: int | None) -> list[Source]:
    if num_envs is not None and num_envs < 1:
        raise BadValue(f"num_envs must be at least 1, got {num_envs!r}")
    if isinstance(env_ids, str) or callable(env_ids):
        return [env_ids] * (num_envs or 1)
    sources = list(env_ids)
    if not sources:
        raise BadValue("make_vec needs at least one env; pass its name")
    if num_envs is not None and num_envs != len(sources):
        raise BadValue(f"got {len(sources)} names but num_envs={num_envs}; omit num_envs")
    return sources


def _factories(
    sources: list[Source],
    wrappers: tuple[Callable[[Env], Env], ...],
    vec_kwargs: Sequence[Mapping[str, Any]] | None,
    kwargs: Mapping[str, Any],
    seed: int,
) -> tuple[list[EnvFactory], list[int]]:
    """Return one factory and one root seed per env. If an env has a `seed` keyword argument, that is its root seed."""
    factories, roots = [], []
    for index, source in enumerate(sources):
        own = {**(vec_kwargs[index] if vec_kwargs is not None else {}), **kwargs}
        root = own.pop("seed", None)
        roots.append(child_seed(seed, index) if root is None else check_seed(root))
        factories.append(EnvFactory.of(source, kwargs=own, wrappers=wrappers))
    return factories, roots

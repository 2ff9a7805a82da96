"""make_vec: ids, keywords, wrappers and a backend's name -> a VectorEnv. GEM's call works as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

from palestra.core import Env
from palestra.errors import BadValue
from palestra.registry import EnvFactory
from palestra.seeding import check_seed, child_seed, fresh_seed
from palestra.vector.backend import Backend, SyncBackend
from palestra.vector.base import VectorEnv
from palestra.workers.types import AUTORESETS, Autoreset, Limits
from palestra.wrappers.factory import WrapperSource, resolve_wrappers

BackendName: TypeAlias = Literal["sync", "thread", "process", "ray"]
BACKENDS = ("sync", "thread", "process", "ray")
Source: TypeAlias = str | Callable[..., Env]


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
    """Many envs at once: `num_envs` of one id, or one for each of several ids (or callables that make an env).

    `backend`: `sync` runs in the caller's thread; `thread` in up to `threads` threads, more of them while steps wait;
    `process` in `workers` processes of up to `threads` threads each (1: envs stay in their worker's main thread); `ray`
    in `workers` actors, each with a process for its envs, made with `ray_options`. The same `seed` gives the same
    episodes on every backend; None draws one. `vec_kwargs` are keywords for each env, `kwargs` for all.

    A step that raises, lasts longer than `step_timeout`, needs more than `memory_limit` bytes in its worker or kills it
    costs that one env: its result carries `info["failure"]`, reward NaN and `truncated`, and a fresh env goes on.
    `max_restarts` workers may be replaced, and one more for every hundred results. `reset_timeout` is `step_timeout`
    unless given; it holds for making an env too.
    """
    if backend is None:
        backend = "thread" if async_mode else "sync"
    elif backend not in BACKENDS:
        near = get_close_matches(str(backend), BACKENDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise BadValue(f"no backend {backend!r}.{hint} There are: {', '.join(BACKENDS)}.")
    if autoreset not in AUTORESETS:
        raise BadValue(f"autoreset is one of {', '.join(AUTORESETS)}, got {autoreset!r}")
    for name, value in (
        ("step_timeout", step_timeout),
        ("reset_timeout", reset_timeout),
        ("memory_limit", memory_limit),
    ):
        if value is not None and not value > 0:
            raise BadValue(f"{name} is above 0, or None for no limit, got {value!r}")
    for name, count in (("workers", workers), ("threads", threads)):
        if count is not None and count < 1:
            raise BadValue(f"{name} is at least 1, got {count!r}")
    sources = _sources(env_ids, num_envs)
    if any(map(_on_palestra_server, sources)):
        return _remote(
            sources,
            wrappers,
            backend,
            seed=seed,
            autoreset=autoreset,
            step_timeout=step_timeout,
            vec_kwargs=vec_kwargs,
            max_failures_in_a_row=max_failures_in_a_row,
            **kwargs,
        )
    seed = fresh_seed() if seed is None else check_seed(seed)
    factories, roots = _factories(sources, resolve_wrappers(wrappers), vec_kwargs, kwargs, seed)
    limits = Limits(
        step_timeout=step_timeout,
        reset_timeout=step_timeout if reset_timeout is None else reset_timeout,
        memory=memory_limit,
        restarts=max_restarts,
    )
    count = workers or (os.cpu_count() or 1)
    pool: Backend
    if backend == "sync":
        pool = SyncBackend(factories, roots, autoreset, limits)
    elif backend == "thread":
        from palestra.vector.thread import ThreadBackend

        pool = ThreadBackend(factories, roots, autoreset, limits, threads or workers or len(factories))
    elif backend == "process":
        from palestra.vector.process import ProcessBackend

        pool = ProcessBackend(factories, roots, autoreset, limits, workers=count, threads=threads)
    else:
        from palestra.vector.ray import RayBackend

        pool = RayBackend(
            factories, roots, autoreset, limits, workers=workers, threads=threads, options=ray_options or {}
        )
    return VectorEnv(
        pool,
        factories=factories,
        seed=seed,
        autoreset=autoreset,
        backend=backend,
        failures_in_a_row=max_failures_in_a_row,
    )


def _on_palestra_server(source: Source) -> bool:
    """Return whether a source is the URL of an env on a Palestra server (other servers' URLs have a `name+` prefix)."""
    scheme, separator, _ = source.partition("://") if isinstance(source, str) else ("", "", "")
    return bool(separator) and "+" not in scheme


def _remote(sources: list[Source], wrappers: Any, backend: str, **settings: Any) -> VectorEnv:
    """Build a vector whose environments live on servers."""
    from palestra.vector.make_remote import make_remote_vec

    if not all(map(_on_palestra_server, sources)):
        raise BadValue("a vector lives on servers or here: give addresses alone, or ids alone")
    if wrappers or backend != "sync":
        raise BadValue("the envs of these addresses run on their server: leave out wrappers and backend")
    return make_remote_vec([str(source) for source in sources], **settings)


def _sources(env_ids: Source | Sequence[Source], num_envs: int | None) -> list[Source]:
    if num_envs is not None and num_envs < 1:
        raise BadValue(f"num_envs is at least 1, got {num_envs!r}")
    if isinstance(env_ids, str) or callable(env_ids):
        return [env_ids] * (num_envs or 1)
    sources = list(env_ids)
    if not sources:
        raise BadValue("a vector has at least one env; give its id")
    if num_envs is not None and num_envs != len(sources):
        raise BadValue(f"{len(sources)} ids and num_envs={num_envs}: leave one of them out, or let them agree")
    return sources


def _factories(
    sources: list[Source],
    wrappers: tuple[Callable[[Env], Env], ...],
    vec_kwargs: Sequence[Mapping[str, Any]] | None,
    kwargs: Mapping[str, Any],
    seed: int,
) -> tuple[list[EnvFactory], list[int]]:
    """One factory and one root seed for each env; a `seed` among an env's own keywords is its root."""
    if vec_kwargs is not None and len(vec_kwargs) != len(sources):
        raise BadValue(f"vec_kwargs holds the keywords of each env: {len(sources)} of them, got {len(vec_kwargs)}")
    factories, roots = [], []
    for index, source in enumerate(sources):
        own = {**(vec_kwargs[index] if vec_kwargs is not None else {}), **kwargs}
        root = own.pop("seed", None)
        roots.append(child_seed(seed, index) if root is None else check_seed(root))
        factories.append(EnvFactory.of(source, kwargs=own, wrappers=wrappers))
    return factories, roots

"""Build a vector of environments that live on one server or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palestra.errors import BadValue
from palestra.registry import EnvFactory
from palestra.remote.address import parse
from palestra.seeding import check_seed, child_seed, fresh_seed
from palestra.vector.base import VectorEnv
from palestra.vector.remote import RemoteBackend
from palestra.workers.types import AUTORESETS, Autoreset


def make_remote_vec(
    urls: Sequence[str],
    *,
    seed: int | None = None,
    autoreset: Autoreset = "same_step",
    step_timeout: float | None = None,
    vec_kwargs: Sequence[Mapping[str, Any]] | None = None,
    max_failures_in_a_row: int = 16,
    **kwargs: Any,
) -> VectorEnv:
    """A vector of environments on one server or several; the same seed gives the same episodes as in process."""
    if autoreset not in AUTORESETS:
        raise BadValue(f"autoreset is one of {', '.join(AUTORESETS)}, got {autoreset!r}")
    if vec_kwargs is not None and len(vec_kwargs) != len(urls):
        raise BadValue(f"vec_kwargs holds the keywords of each env: {len(urls)} of them, got {len(vec_kwargs)}")
    options = {name: kwargs.pop(name) for name in ("token", "patience", "lease") if name in kwargs}
    kwargs = {**kwargs.pop("kwargs", {}), **kwargs}
    addresses = [parse(url) for url in urls]
    seed = fresh_seed() if seed is None else check_seed(seed)
    own = [{**(vec_kwargs[i] if vec_kwargs is not None else {}), **kwargs} for i in range(len(urls))]
    roots = []
    for index, given in enumerate(own):
        root = given.pop("seed", None)
        roots.append(child_seed(seed, index) if root is None else check_seed(root))
    pool = RemoteBackend(addresses, own, roots, autoreset, step_timeout=step_timeout, **options)
    factories = [EnvFactory(name=url) for url in urls]
    return VectorEnv(
        pool,
        factories=factories,
        seed=seed,
        autoreset=autoreset,
        backend="remote",
        failures_in_a_row=max_failures_in_a_row,
    )

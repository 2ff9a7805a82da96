"""GEM's functions for registering and building environments and vector environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from palestra.compat.gem.building import TranslatedEnv, build, load
from palestra.compat.gem.earlier_ids import EARLIER_IDS
from palestra.compat.gem.native import NativeEnv
from palestra.compat.gem.vectors import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from palestra.core import Env
from palestra.errors import BadEnvId, BadValue, UnknownEnv
from palestra.keywords import accepted_keywords
from palestra.registry import get_spec, list_envs
from palestra.registry import register as palestra_register
from palestra.seeding import check_seed


@dataclass
class EnvSpec:
    """A registered environment."""

    id: str
    entry_point: str | Callable[..., Any]
    kwargs: dict[str, Any] = field(default_factory=dict)


# Ids that GEM registers but cannot build.
_UNAVAILABLE = {
    "rg:composite": (
        "rg:composite needs a list of datasets, which GEM does not pass, so GEM cannot build it either; use the ids of "
        "the datasets, such as gem.make_vec(['rg:leg_counting', 'rg:letter_counting'])"
    )
}
_EARLIER = {env_id: EnvSpec(env_id, entry_point, kwargs) for env_id, (entry_point, kwargs) in EARLIER_IDS.items()}
_registered: dict[str, EnvSpec] = {}  # environments registered with `register` below


class _Registry(Mapping[str, EnvSpec]):
    """All of Palestra's environments, those with GEM's earlier ids and those registered with `register`, by id."""

    def __getitem__(self, env_id: str) -> EnvSpec:
        own = _registered.get(env_id) or _EARLIER.get(env_id)
        if own is not None:
            return own
        try:
            spec = get_spec(env_id)
        except (BadEnvId, UnknownEnv) as err:
            raise KeyError(env_id) from err
        return EnvSpec(spec.id, spec.entry_point, dict(spec.kwargs))

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys([*list_envs(), *_EARLIER, *_registered])

    def __len__(self) -> int:
        return sum(1 for _ in self)


ENV_REGISTRY: Mapping[str, EnvSpec] = _Registry()


def register(env_id: str, entry_point: str | Callable[..., Any], **kwargs: Any) -> None:
    """Register an environment. With an id of the form family:Name, it is also available to `palestra.make`."""
    if env_id in _registered:
        raise ValueError(f"Environment {env_id} already registered.")
    with suppress(BadEnvId):  # GEM accepts every id
        palestra_register(env_id, partial(_build, env_id))
    _registered[env_id] = EnvSpec(env_id, entry_point, kwargs)


def print_envs() -> None:
    """Print all environments."""
    for env_id, spec in ENV_REGISTRY.items():
        print(f"  - {env_id}:\n      Entry Point: {spec.entry_point}\n      Kwargs: {spec.kwargs}")


def make(env_id: str, **kwargs: Any) -> Env:
    """Build an environment with GEM's keyword arguments."""
    env = _build(env_id, **kwargs)
    if isinstance(env, NativeEnv):
        env.set_factory(partial(make, env_id), kwargs)
    env.env_id = env_id  # type: ignore[attr-defined]  # an attribute of GEM's environments
    return env


def _build(env_id: str, **kwargs: Any) -> Env:
    spec = _registered.get(env_id) or _EARLIER.get(env_id)
    if spec is not None:
        target = load(spec.entry_point)
        accepted = None
        if isinstance(target, type) and not issubclass(target, TranslatedEnv):
            accepted = accepted_keywords(target)
        first = None if accepted is None or "seed" in accepted else kwargs.pop("seed", None)
        env: Env = target(**{**spec.kwargs, **kwargs})
        if first is not None:  # the class has no `seed`, which `make_vec` passes to every environment
            env._first_seed = check_seed(first)
        env.entry_point = spec.entry_point  # type: ignore[attr-defined]
        return env
    if env_id in _UNAVAILABLE:
        raise BadValue(_UNAVAILABLE[env_id])
    native = get_spec(env_id)
    target = load(native.entry_point)
    if not isinstance(target, type):  # another package registered a function
        return NativeEnv(target(**{**native.kwargs, **kwargs}), env_id, native.entry_point)
    inner, extract_boxed = build(target, dict(native.kwargs), kwargs)
    inner.unwrapped.spec = native
    return NativeEnv(inner, env_id, native.entry_point, extract_boxed)


def make_vec(
    env_ids: str | Sequence[str],
    wrappers: Sequence[Callable[[Env], Env]] | None = None,
    vec_kwargs: Sequence[dict[str, Any]] | None = None,
    async_mode: bool = False,
    seed: int = 0,
    **kwargs: Any,
) -> VectorEnv:
    """Build a vector environment, whose results are numpy arrays; `async_mode` runs its environments in threads."""
    names = [env_ids] if isinstance(env_ids, str) else list(env_ids)

    def build(index: int) -> Env:
        own = {"seed": seed + index, **(vec_kwargs[index] if vec_kwargs is not None else {}), **kwargs}
        env = make(names[index], **own)
        for wrap in wrappers or ():
            env = wrap(env)
        return env

    kind = AsyncVectorEnv if async_mode else SyncVectorEnv
    return kind(env_ids=names, env_fns=[partial(build, index) for index in range(len(names))])

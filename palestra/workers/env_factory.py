"""Ids, keywords and wrappers -> recipes that make an env in any process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from palestra import registry
from palestra.core import Env
from palestra.errors import BadValue, UnknownEnv
from palestra.optional import require
from palestra.spec import EnvSpec

Maker: TypeAlias = Callable[..., Env]
Wrap: TypeAlias = str | tuple[str, Mapping[str, Any]] | Callable[[Env], Env]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to make one env of a vector."""

    spec: EnvSpec | None  # None: `maker` says it all
    maker: Maker | None = None  # None: the spec's entry point
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[Callable[[Env], Env], ...] = ()

    @property
    def name(self) -> str:
        return self.spec.id if self.spec is not None else getattr(self.maker, "__name__", repr(self.maker))

    def make(self) -> Env:
        if self.spec is not None:
            try:
                registry.get_spec(self.spec.id)
            except UnknownEnv:  # registered in the process that wrote the recipe
                registry._add(self.spec, self.maker or self.spec.entry_point)
            env = registry.make(self.spec.id, **self.kwargs)
        elif self.maker is not None:
            env = self.maker(**self.kwargs)
        else:
            raise BadValue("a recipe names a spec or a maker")
        for wrap in self.wrappers:
            env = wrap(env)
        return env


def recipe_of(source: str | Maker, kwargs: Mapping[str, Any], wrappers: tuple[Callable[[Env], Env], ...]) -> Recipe:
    """The recipe for an id, or for a callable that makes an env."""
    if isinstance(source, str):
        spec = registry.get_spec(source)
        module, _, name = spec.entry_point.partition(":")
        by_name = module != "__main__" and "<" not in name  # else only the object itself can be handed over
        maker = None if by_name else registry._maker(spec)
        return Recipe(spec=spec, maker=maker, kwargs=dict(kwargs), wrappers=wrappers)
    if not callable(source):
        raise BadValue(f"a vector is made of ids and of callables that make an env, got {source!r}")
    return Recipe(spec=None, maker=source, kwargs=dict(kwargs), wrappers=wrappers)


def wrappers_of(given: str | Iterable[Wrap] | None) -> tuple[Callable[[Env], Env], ...]:
    """Wrappers from callables, from GEM's names, from names in palestra.wrappers, and ("Horizon", {"turns": 5})."""
    if given is None:
        return ()
    items: Iterable[Wrap] = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    found: list[Callable[[Env], Env]] = []
    for item in items:
        if isinstance(item, str):
            if item:
                found.append(_named(item))
        elif isinstance(item, tuple):
            name, kwargs = item
            found.append(partial(_named(name), **kwargs))
        elif callable(item):
            found.append(item)
        else:
            raise BadValue(f'a wrapper is a callable, a name or a pair like ("Horizon", {{"turns": 5}}), got {item!r}')
    return tuple(found)


def _named(name: str) -> Callable[..., Env]:
    from palestra import wrappers

    if name in wrappers.__all__ and name[0].isupper():
        found: Callable[..., Env] = getattr(wrappers, name)
        return found
    try:
        return wrappers.get_wrapper_fns(name)[0]
    except BadValue as err:
        classes = ", ".join(known for known in wrappers.__all__ if known[0].isupper())
        raise BadValue(f"{err}, {classes}") from err


def dump_recipes(recipes: list[Recipe]) -> bytes:
    """As bytes for another process; by value what that process could not import."""
    try:
        data = pickle.dumps(recipes, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        data = b""
    if data and b"__main__" not in data:
        return data
    cloudpickle = require("cloudpickle", extra="vector")
    try:
        by_value: bytes = cloudpickle.dumps(recipes)
    except (pickle.PicklingError, AttributeError, TypeError) as err:
        raise BadValue(
            f"these envs cannot be handed to another process: {err}. Use backend 'sync' or 'thread'"
        ) from err
    return by_value

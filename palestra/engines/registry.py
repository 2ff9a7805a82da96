"""Look up engine factories by name: built in, registered in Python, or installed as an entry point."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from palestra import plugins
from palestra.engines.base import Engine
from palestra.errors import BadValue

GROUP = "engines"  # entry points of the group palestra.engines: name = "package.module:factory"

EngineFactory = Callable[..., Engine]

_BUILT_IN = {
    "local": "palestra.engines.local.engine:LocalEngine",
    "openai": "palestra.engines.openai:OpenAIEngine",
    "scripted": "palestra.engines.scripted:ScriptedEngine",
}
_registered: dict[str, EngineFactory] = {}


def register_engine(name: str, factory: EngineFactory, *, overwrite: bool = False) -> None:
    """Make `factory` (an Engine class, or a function that returns an Engine) available under `name`."""
    if not callable(factory):
        raise BadValue(f"the factory of engine {name!r} must be callable, got {type(factory).__name__}")
    if not overwrite and (name in _BUILT_IN or _registered.get(name, factory) is not factory):
        raise BadValue(f"an engine named {name!r} exists already; choose another name or pass overwrite=True")
    _registered[name] = factory


def get_engine(name: str) -> EngineFactory:
    """Return the factory registered as `name`; registrations in Python override built-ins and entry points."""
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        built_in: EngineFactory = getattr(import_module(module), attribute)
        return built_in
    plug_in: EngineFactory | None = plugins.load(GROUP, name)
    if plug_in is not None:
        return plug_in
    names = engine_names()
    close = get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise BadValue(f"no engine named {name!r}.{hint} Available: {', '.join(names)}; add one with register_engine()")


def make_engine(name: str, *args: Any, **kwargs: Any) -> Engine:
    """Construct the engine registered as `name`."""
    return get_engine(name)(*args, **kwargs)


def engine_names() -> list[str]:
    """Return the names of all engines, sorted."""
    return sorted({*_registered, *_BUILT_IN, *plugins.available(GROUP)})

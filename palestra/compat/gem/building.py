"""Build Palestra's environments with GEM's keyword arguments."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, Self

from palestra.compat.gem.keywords import translate
from palestra.compat.gem.native import NativeEnv
from palestra.core import Env
from palestra.errors import BadValue
from palestra.seeding import check_seed
from palestra.wrappers.horizon import Horizon

_PACKAGE = __name__.rpartition(".")[0]
_PREFIX = "gem."  # entry points with this prefix are imported from this package
_DEFAULTS: dict[str, dict[str, Any]] = {
    "CodeEnv": {"question_key": "problem"},
    "MathEnv": {"question_key": "problem"},
    "MathVisualEnv": {"question_key": "problem", "image_key": "images"},
    "QaEnv": {"extract_boxed": False},
}


def build(cls: Callable[..., Any], defaults: dict[str, Any], given: dict[str, Any]) -> tuple[Env, bool | None]:
    """Return an environment, and True if it accepts only boxed answers, False if only tagged ones, or None if both.

    `defaults` are Palestra's keyword arguments, and `given` are GEM's. If `given` contains a smaller `max_turns` than
    the game accepts, the game is truncated after that many turns, as in GEM.
    """
    if not isinstance(cls, type):
        raise BadValue(f"{cls!r} is not a class")
    arguments = translate(cls, given)
    kwargs = {**defaults, **arguments.kwargs}
    turns = None
    try:
        env: Env = cls(**kwargs)
    except BadValue as err:
        if "max_turns must be at least" not in str(err) or "max_turns" not in given:
            raise
        turns = kwargs.pop("max_turns")
        env = cls(**{**kwargs, **({"max_turns": defaults["max_turns"]} if "max_turns" in defaults else {})})
    if arguments.seed is not None:
        env._first_seed = check_seed(arguments.seed)
    return env if turns is None else Horizon(env, turns, announce=True), arguments.extract_boxed


def load(entry_point: str | Callable[..., Any]) -> Callable[..., Any]:
    """Import `module:name`; return a callable unchanged."""
    if not isinstance(entry_point, str):
        return entry_point
    module, _, name = entry_point.partition(":")
    if module.startswith(_PREFIX):
        module = f"{_PACKAGE}.{module.removeprefix(_PREFIX)}"
    try:
        target: Callable[..., Any] = getattr(import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as err:
        raise ImportError(f"{entry_point!r} cannot be imported: {err}") from err
    return target


class TranslatedEnv(NativeEnv):
    """Base class of the classes with GEM's names, such as `MathEnv`, which take GEM's keyword arguments."""

    target: ClassVar[str]  # Palestra's class
    defaults: ClassVar[dict[str, Any]]  # GEM's default keyword arguments, where they differ from Palestra's

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:  # unlike Env.__new__, accept GEM's keyword arguments
        env = object.__new__(cls)
        env._call = (args, kwargs)
        return env

    def __init__(self, **kwargs: Any) -> None:
        inner, extract_boxed = build(load(self.target), {}, {**self.defaults, **kwargs})
        super().__init__(inner, extract_boxed=extract_boxed)
        self.set_factory(type(self), kwargs)


def gem_class(name: str, target: str) -> type[TranslatedEnv]:
    """Return a class with GEM's name for a Palestra class."""
    attributes = {"target": target, "defaults": _DEFAULTS.get(name, {}), "__doc__": f"GEM's `{name}`, a `{target}`."}
    return type(name, (TranslatedEnv,), attributes)

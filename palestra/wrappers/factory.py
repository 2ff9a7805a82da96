"""Wrappers by GEM's names, for command lines and for code that comes from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from palestra.core import Env
from palestra.errors import BadValue
from palestra.wrappers.history import ChatTokenizer, History
from palestra.wrappers.horizon import Horizon
from palestra.wrappers.record import Record
from palestra.wrappers.rewards import ClipReward, ScaleReward, ShapeReward, TurnCost
from palestra.wrappers.statistics import Statistics
from palestra.wrappers.tools import Tools

WrapperSource: TypeAlias = str | tuple[str, Mapping[str, Any]] | Callable[[Env], Env]

_NAMES: dict[str, Callable[[Env], Env]] = {
    "concat": partial(History, mode="observations", latest_state=True),
    "concat_with_action": partial(History, mode="actions", latest_state=True),
    "concat_messages": partial(History, mode="messages", latest_state=True),
    "episode_tracking": Statistics,
}
_CLASSES: dict[str, Callable[..., Env]] = {
    wrapper.__name__: wrapper
    for wrapper in (ClipReward, History, Horizon, Record, ScaleReward, ShapeReward, Statistics, Tools, TurnCost)
}
_WITH_TOKENIZER: dict[str, dict[str, Any]] = {
    "concat_chat": {"mode": "template", "latest_state": True},
    "concat_chat_on_reset": {"mode": "actions", "latest_state": True},
}


def get_wrapper_fns(wrappers: str, tokenizer: ChatTokenizer | None = None) -> list[Callable[[Env], Env]]:
    """The wrappers that a comma-separated list names, in order; pass them to `make(id, wrappers=...)`."""
    found: list[Callable[[Env], Env]] = []
    for name in filter(None, (part.strip() for part in wrappers.split(","))):
        if name in _WITH_TOKENIZER:
            if tokenizer is None:
                raise BadValue(f"{name} needs a tokenizer: get_wrapper_fns({wrappers!r}, tokenizer=...)")
            found.append(partial(History, tokenizer=tokenizer, **_WITH_TOKENIZER[name]))
        elif name in _NAMES:
            found.append(_NAMES[name])
        else:
            known = sorted([*_NAMES, *_WITH_TOKENIZER])
            raise BadValue(f"no wrapper {name!r}; there are {', '.join(known)}")
    return found


def resolve_wrappers(sources: str | Iterable[WrapperSource] | None) -> tuple[Callable[[Env], Env], ...]:
    """Return the callables for a list of wrappers, or for a string of names separated by commas.

    An item is a name ("Horizon", "concat"), a name with keywords ("Horizon", {"turns": 5}), or the callable itself.
    """
    if sources is None:
        return ()
    items: Iterable[WrapperSource] = (
        [part.strip() for part in sources.split(",")] if isinstance(sources, str) else sources
    )
    wrappers: list[Callable[[Env], Env]] = []
    for item in items:
        if isinstance(item, str):
            if item:
                wrappers.append(_by_name(item))
        elif isinstance(item, tuple | list):
            name, kwargs = item
            wrappers.append(partial(_by_name(name), **kwargs))
        elif callable(item):
            wrappers.append(item)
        else:
            raise BadValue(f'a wrapper is a callable, a name or a pair like ("Horizon", {{"turns": 5}}), got {item!r}')
    return tuple(wrappers)


def _by_name(name: str) -> Callable[..., Env]:
    if name in _CLASSES:
        return _CLASSES[name]
    try:
        return get_wrapper_fns(name)[0]
    except BadValue as err:
        raise BadValue(f"{err}, {', '.join(_CLASSES)}") from err

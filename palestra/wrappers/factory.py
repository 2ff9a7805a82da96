"""Wrappers by GEM's names, for command lines and for code that comes from there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from palestra.core import Env
from palestra.errors import BadValue
from palestra.wrappers.history import ChatTokenizer, History
from palestra.wrappers.statistics import Statistics

_NAMES: dict[str, Callable[[Env], Env]] = {
    "concat": partial(History, mode="observations", latest_state=True),
    "concat_with_action": partial(History, mode="actions", latest_state=True),
    "concat_messages": partial(History, mode="messages", latest_state=True),
    "episode_tracking": Statistics,
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

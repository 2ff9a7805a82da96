"""Create wrappers from their names, for command lines, TOML files and code written for GEM."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from palestra.core import Env, Wrapper
from palestra.errors import BadValue
from palestra.wrappers.history import ChatTokenizer, History
from palestra.wrappers.horizon import Horizon
from palestra.wrappers.record import Record
from palestra.wrappers.rewards import ClipReward, ScaleReward, ShapeReward, TurnCost
from palestra.wrappers.statistics import Statistics
from palestra.wrappers.tools import Tools

WrapperSource: TypeAlias = str | tuple[str, Mapping[str, Any]] | Mapping[str, Any] | Callable[[Env], Env]

WRAPPERS: dict[str, Callable[..., Env]] = {
    "ClipReward": ClipReward,
    "History": History,
    "Horizon": Horizon,
    "Record": Record,
    "ScaleReward": ScaleReward,
    "ShapeReward": ShapeReward,
    "Statistics": Statistics,
    "Tools": Tools,
    "TurnCost": TurnCost,
    # Names that GEM uses.
    "concat": partial(History, mode="observations", latest_state=True),
    "concat_with_action": partial(History, mode="actions", latest_state=True),
    "concat_messages": partial(History, mode="messages", latest_state=True),
    "episode_tracking": Statistics,
}
_WITH_TOKENIZER: dict[str, dict[str, Any]] = {  # GEM wrappers that need a tokenizer
    "concat_chat": {"mode": "template", "latest_state": True},
    "concat_chat_on_reset": {"mode": "actions", "latest_state": True},
}


def get_wrapper_fns(wrappers: str, tokenizer: ChatTokenizer | None = None) -> list[Callable[[Env], Env]]:
    """Return the wrappers in a comma-separated list of names, in order; compatible with GEM's `get_wrapper_fns`."""
    return list(resolve_wrappers(wrappers, tokenizer=tokenizer))


def resolve_wrappers(
    wrappers: str | Iterable[WrapperSource] | None, *, tokenizer: ChatTokenizer | None = None
) -> tuple[Callable[[Env], Env], ...]:
    """Convert descriptions of wrappers to callables that wrap an env, in order. Each description is one of:

    - a name, optionally with keyword arguments in parentheses: "Statistics", "Horizon(turns=5)";
    - "module:callable", optionally with keyword arguments: "my_package.rewards:Shaped(scale=2)";
    - several of these in one string, separated by commas;
    - a pair ("Horizon", {"turns": 5}), or a mapping {"name": "Horizon", "turns": 5}, such as a TOML table;
    - a callable that takes an env and returns one.
    """
    items = [wrappers] if isinstance(wrappers, str) else list(wrappers or ())
    resolved: list[Callable[[Env], Env]] = []
    for item in items:
        if isinstance(item, str):
            resolved += [_bind(*_parse_call(text), tokenizer) for text in _split(item)]
        elif isinstance(item, Mapping) and isinstance(item.get("name"), str):
            resolved.append(_bind(item["name"], {k: v for k, v in item.items() if k != "name"}, tokenizer))
        elif isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[1], Mapping):
            resolved.append(_bind(item[0], dict(item[1]), tokenizer))
        elif callable(item):
            resolved.append(item)
        else:
            raise BadValue(
                'a wrapper is a name such as "Horizon(turns=5)", a pair ("Horizon", {"turns": 5}), '
                f"or a callable that takes an env; got {item!r}"
            )
    return tuple(resolved)


def _bind(name: str, kwargs: dict[str, Any], tokenizer: ChatTokenizer | None) -> Callable[[Env], Env]:
    target = _find(name, tokenizer)
    return partial(target, **kwargs) if kwargs else target


def _find(name: str, tokenizer: ChatTokenizer | None) -> Callable[..., Env]:
    if name in WRAPPERS:
        return WRAPPERS[name]
    if name in _WITH_TOKENIZER:
        if tokenizer is None:
            raise BadValue(f"the wrapper {name!r} needs a tokenizer: get_wrapper_fns({name!r}, tokenizer=...)")
        return partial(History, tokenizer=tokenizer, **_WITH_TOKENIZER[name])
    module_name, colon, path = name.partition(":")
    if not colon:
        names = ", ".join(sorted([*WRAPPERS, *_WITH_TOKENIZER]))
        raise BadValue(f"no wrapper {name!r}. The wrappers are {names}; pass module:callable for your own.")
    try:
        target: Any = import_module(module_name)
        for part in path.split("."):
            target = getattr(target, part)
    except (ModuleNotFoundError, AttributeError, ValueError) as err:
        raise BadValue(f"the wrapper {name!r} cannot be imported: {err}") from err
    if not callable(target) or (isinstance(target, type) and not issubclass(target, Wrapper)):
        raise BadValue(f"{name!r} is neither a subclass of palestra.Wrapper nor a function that wraps an env")
    wrapper: Callable[..., Env] = target
    return wrapper


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Split "Horizon(turns=5)" into the name and the keyword arguments, whose values are Python literals."""
    name, parenthesis, rest = text.partition("(")
    name = name.strip()
    if not parenthesis:
        return name, {}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(item.arg is None for item in call.keywords):
            raise ValueError("keyword arguments must be written as name=value")
        return name, {str(item.arg): ast.literal_eval(item.value) for item in call.keywords}
    except (SyntaxError, ValueError) as err:
        raise BadValue(f"the wrapper {text!r} cannot be read: {err}. Write for example Horizon(turns=5).") from err

"""AgentGym's numbers of tasks -> our ids, seeds and options, of what a server serves.

BabyAI and ScienceWorld have AgentGym's own order, where the environment of all their levels or tasks is served. All
others spread: of n environments, the task i is the environment i mod n with seed i // n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from palestra import registry

BABYAI_ALL = "babyai:All-v0"
SCIWORLD_ALL = "sciworld:All-v0"
WEBSHOP = "webshop:Shop-v0"
_LEFT_OUT = frozenset({"5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2"})  # types that AgentGym does not play


class Task(NamedTuple):
    """An episode."""

    env: str
    seed: int
    options: dict[str, Any]
    kwargs: dict[str, Any]


def spread(ids: Sequence[str], number: int) -> Task:
    """Over all that is served."""
    return Task(ids[number % len(ids)], number // len(ids), {}, {})


def babyai(ids: Sequence[str], number: int) -> Task:
    """Level `number % 40 + 1`, seed `number // 40`."""
    return Task(BABYAI_ALL, number, {}, {}) if BABYAI_ALL in ids else spread(ids, number)


def sciworld(ids: Sequence[str], number: int) -> Task:
    """All variations of one type of task after the other, over and over."""
    if SCIWORLD_ALL not in ids:
        return spread(ids, number)
    games = _games()
    name, variation = games[number % len(games)]
    return Task(SCIWORLD_ALL, number, {"task": name, "variation": variation}, {})


def webshop(ids: Sequence[str], number: int) -> Task:
    """AgentGym's rules, whatever is served: pages as plain text, and a mistake ends nothing."""
    rules = {"mode": "text", "error_reward": 0.0, "stop_when_error": False}
    return spread([WEBSHOP] if WEBSHOP in ids else ids, number)._replace(kwargs=rules)


@cache
def _games() -> tuple[tuple[str, int], ...]:
    from palestra.envs.sciworld.tasks import TYPES

    types = [kind for kind in TYPES.values() if kind.number not in _LEFT_OUT]
    return tuple((kind.name, variation) for kind in types for variation in range(kind.variations))


TASKS: dict[str, tuple[str, Callable[[Sequence[str], int], Task]]] = {  # AgentGym's family -> ours, and its order
    "babyai": ("babyai", babyai),
    "textcraft": ("textcraft", spread),
    "sciworld": ("sciworld", sciworld),
    "searchqa": ("search", spread),
    "webshop": ("webshop", webshop),
}


def served(ids: Sequence[str], family: str) -> tuple[str, ...]:
    """Of `ids`, those that AgentGym's `family` plays; without questions of files, where there are others."""
    mine = [name for name in ids if name.partition(":")[0] == TASKS[family][0]]
    at_hand = [name for name in mine if not registry.get_spec(name).needs_data]
    return tuple(at_hand or mine)

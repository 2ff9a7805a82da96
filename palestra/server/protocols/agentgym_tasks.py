"""Map AgentGym's task numbers to environment ids, seeds and options.

Task numbers of BabyAI and ScienceWorld have the same meaning as in AgentGym if `babyai:All-v0` or `sciworld:All-v0` is
served. In all other cases, the numbers are distributed over the environments of the family: with n environments, task i
is environment i mod n with seed i // n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from palestra import registry

BABYAI_ALL = "babyai:All-v0"
SCIWORLD_ALL = "sciworld:All-v0"
WEBSHOP = "webshop:Shop-v0"
# AgentGym does not use these task types.
_EXCLUDED_TYPES = frozenset({"5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2"})


class Task(NamedTuple):
    """Environment and reset arguments of one episode."""

    env: str
    seed: int
    options: dict[str, Any]
    kwargs: dict[str, Any]


def spread(ids: Sequence[str], number: int) -> Task:
    """Return task `number`, with task numbers distributed evenly over the environments `ids`."""
    return Task(ids[number % len(ids)], number // len(ids), {}, {})


def babyai(ids: Sequence[str], number: int) -> Task:
    """Return the task of level `number % 40 + 1` with seed `number // 40`, as in AgentGym."""
    return Task(BABYAI_ALL, number, {}, {}) if BABYAI_ALL in ids else spread(ids, number)


def sciworld(ids: Sequence[str], number: int) -> Task:
    """Return task `number` of AgentGym, whose tasks are all variations of all task types, in order."""
    if SCIWORLD_ALL not in ids:
        return spread(ids, number)
    variations = _sciworld_variations()
    name, variation = variations[number % len(variations)]
    return Task(SCIWORLD_ALL, number, {"task": name, "variation": variation}, {})


def webshop(ids: Sequence[str], number: int) -> Task:
    """Return a task with AgentGym's rules: pages are plain text, and invalid actions do not end the episode."""
    rules = {"mode": "text", "error_reward": 0.0, "stop_when_error": False}
    return spread([WEBSHOP] if WEBSHOP in ids else ids, number)._replace(kwargs=rules)


@cache
def _sciworld_variations() -> tuple[tuple[str, int], ...]:
    from palestra.envs.sciworld.tasks import TYPES

    types = [kind for kind in TYPES.values() if kind.number not in _EXCLUDED_TYPES]
    return tuple((kind.name, variation) for kind in types for variation in range(kind.variations))


# AgentGym family -> (Palestra family, function that returns a task).
TASKS: dict[str, tuple[str, Callable[[Sequence[str], int], Task]]] = {
    "babyai": ("babyai", babyai),
    "textcraft": ("textcraft", spread),
    "sciworld": ("sciworld", sciworld),
    "searchqa": ("search", spread),
    "webshop": ("webshop", webshop),
}


def family_envs(ids: Sequence[str], family: str) -> tuple[str, ...]:
    """Return the served environments of an AgentGym family, preferably those that need no downloads."""
    served = [name for name in ids if name.partition(":")[0] == TASKS[family][0]]
    available = [name for name in served if not registry.get_spec(name).needs_data]
    return tuple(available or served)

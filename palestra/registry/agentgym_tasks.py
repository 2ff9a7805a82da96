"""Map AgentGym's task numbers to environment ids, seeds and options.

Task numbers for BabyAI, ScienceWorld and TextCraft have the same meaning as in AgentGym if `babyai:All-v0`,
`sciworld:All-v0` or `textcraft:All-v0` is served. In all other cases, the numbers are distributed over the environments
in the family: with n environments, task i is environment i mod n with seed i // n. `item_task` maps the item ids in
AgentGym's data files, such as "textcraft_12".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from palestra.errors import BadValue
from palestra.registry.specs import get_spec

BABYAI_ALL = "babyai:All-v0"
SCIWORLD_ALL = "sciworld:All-v0"
TEXTCRAFT_ALL = "textcraft:All-v0"
WEBSHOP = "webshop:Shop-v0"
WORDLE = "game:Wordle-v0-hard"  # words of five letters, as in AgentGym
WEBARENA = "webarena:All-v0"
# Number of the first question in each of SearchQA's test sets; the sets are numbered consecutively.
SEARCH_SETS = (
    ("search:NQ", 0),
    ("search:TriviaQA", 3_610),
    ("search:PopQA", 14_923),
    ("search:HotpotQA", 29_190),
    ("search:2Wiki", 36_595),
    ("search:Musique", 49_171),
    ("search:Bamboogle", 51_588),
)
SEARCH_QUESTIONS = 51_713  # number of test questions; larger task numbers are training questions


class Task(NamedTuple):
    """Environment and reset arguments for one episode."""

    env: str
    seed: int
    options: dict[str, Any]
    kwargs: dict[str, Any]


def spread(ids: Sequence[str], number: int) -> Task:
    """Return task `number`, with task numbers distributed evenly over the environments `ids`."""
    return Task(ids[number % len(ids)], number // len(ids), {}, {})


def babyai(ids: Sequence[str], number: int) -> Task:
    """Return AgentGym's task `number`, which is level `number % 40 + 1` with seed `number // 40`, if it is served."""
    return Task(BABYAI_ALL, number, {}, {}) if BABYAI_ALL in ids else spread(ids, number)


def textcraft(ids: Sequence[str], number: int) -> Task:
    """Return AgentGym's task `number`, which is the goal with this number in order of depth, if it is served."""
    if TEXTCRAFT_ALL not in ids:
        return spread(ids, number)
    return Task(TEXTCRAFT_ALL, number, {}, {"order": "agentgym"})


def sciworld(ids: Sequence[str], number: int) -> Task:
    """Return AgentGym's task `number`, which is the variation with this number in AgentGym's list, if it is served."""
    if SCIWORLD_ALL not in ids:
        return spread(ids, number)
    from palestra.envs.sciworld.tasks import agentgym_variations

    variations = agentgym_variations()
    name, variation = variations[number % len(variations)]
    return Task(SCIWORLD_ALL, number, {"task": name, "variation": variation}, {})


def webshop(ids: Sequence[str], number: int) -> Task:
    """Return a task with AgentGym's rules: pages are plain text, and invalid actions do not end the episode."""
    rules = {"mode": "text", "error_reward": 0.0, "stop_when_error": False}
    return spread([WEBSHOP] if WEBSHOP in ids else ids, number)._replace(kwargs=rules)


def webarena(ids: Sequence[str], number: int) -> Task:
    """Return WebArena's task `number` if `webarena:All-v0` is served."""
    return Task(WEBARENA, 0, {"task": number}, {}) if WEBARENA in ids else spread(ids, number)


def wordle(ids: Sequence[str], number: int) -> Task:
    """Return a game with AgentGym's six guesses; the number is the seed."""
    return spread(ids, number)._replace(kwargs={"max_turns": 6})


def sqlgym(ids: Sequence[str], number: int) -> Task:
    """Return a question whose prompt contains the table definitions, because AgentGym's agents reply only once."""
    return spread(ids, number)._replace(kwargs={"show_schema": True})


# AgentGym family -> (start of the ids of its environments, function that returns a task).
TASKS: dict[str, tuple[str, Callable[[Sequence[str], int], Task]]] = {
    "babyai": ("babyai:", babyai),
    "textcraft": ("textcraft:", textcraft),
    "sciworld": ("sciworld:", sciworld),
    "searchqa": ("search:", spread),
    "webarena": ("web:", webarena),
    "webshop": ("webshop:", webshop),
    "wordle": (WORDLE, wordle),
    "sqlgym": ("sql:", sqlgym),
}
NUMBERED = ("babyai", "textcraft", "sciworld", "searchqa", "webshop")  # families whose item ids `item_task` accepts


def family_envs(ids: Sequence[str], family: str) -> tuple[str, ...]:
    """Return the served environments of an AgentGym family, preferably those that need no downloads."""
    if family == "webarena" and WEBARENA in ids:
        return (WEBARENA,)
    served = [name for name in ids if name.startswith(TASKS[family][0])]
    available = [name for name in served if not get_spec(name).needs_data]
    return tuple(available or served)


def item_task(item_id: str) -> tuple[str, Task]:
    """Return the AgentGym family and the task for an item id; a seed and keyword arguments determine the task."""
    family, _, digits = item_id.rpartition("_")
    if family not in NUMBERED or not digits.isdecimal():
        raise BadValue(
            f"{item_id!r} is not a known item id; item ids are NAME_NUMBER, where NAME is one of {', '.join(NUMBERED)}"
        )
    number = int(digits)
    if family == "searchqa":
        if number >= SEARCH_QUESTIONS:
            raise BadValue(f"{item_id} is a SearchQA training question; test questions are 0 to {SEARCH_QUESTIONS - 1}")
        env, first = next((env, first) for env, first in reversed(SEARCH_SETS) if number >= first)
        return family, Task(env, number - first, {}, {"shuffle": False})
    if family == "webshop":
        return family, Task(WEBSHOP, number, {}, {"data_split": "all", "shuffle": False})
    env = {"babyai": BABYAI_ALL, "sciworld": SCIWORLD_ALL, "textcraft": TEXTCRAFT_ALL}[family]
    order = {} if family == "babyai" else {"order": "agentgym"}
    return family, Task(env, number, {}, {"split": None, **order})

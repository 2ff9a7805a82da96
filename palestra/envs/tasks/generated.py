"""GeneratedTask: tasks that are made up on the spot, from one seed and a level of difficulty.

A generator writes `levels` (what each level means in its own keywords), `check` (which values those may have) and
`generate` (a generator of chance and the keywords -> an item). What its constructor is given beside the level wins
over the level: `Arithmetic(level="hard", digits=6)`. At the level "random" every episode draws one of the others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.tasks.base import Item, TaskEnv, TaskOptions
from palestra.errors import BadValue

RANDOM = "random"

Levels = Mapping[str, Mapping[str, Any]]


class GeneratedTask(TaskEnv):
    """Base of the generators; see the module's docstring for what one provides."""

    levels: ClassVar[Levels]  # from the easiest to the hardest
    shared = TaskEnv.shared | {"_given"}

    def __init__(self, level: str, given: Mapping[str, Any], /, **options: Unpack[TaskOptions]) -> None:
        """`given`: the generator's own keywords; None means what the level says."""
        super().__init__(**options)
        if level not in (*self.levels, RANDOM):
            raise BadValue(f"level is one of {', '.join(self.levels)} or {RANDOM}, got {level!r}")
        self.level = level
        self._given = {name: value for name, value in given.items() if value is not None}
        for name in self.levels if level == RANDOM else (level,):
            self.check(**self.settings(name))

    @classmethod
    @abstractmethod
    def check(cls, *args: Any, **settings: Any) -> None:
        """BadValue where a keyword has a value that it may not have."""

    @classmethod
    @abstractmethod
    def generate(cls, rng: Random, *args: Any, **settings: Any) -> Item:
        """An item, from `rng` alone. Its key names the kind of question."""

    def settings(self, level: str) -> dict[str, Any]:
        """Every keyword's value at a level."""
        return {**self.levels[level], **self._given}

    def draw(self, options: dict[str, Any]) -> Item:  # noqa: ARG002  # there is nothing to choose but the seed
        level = self.rng.choice(tuple(self.levels)) if self.level == RANDOM else self.level
        return self.generate(self.rng, **self.settings(level))


def check_whole(name: str, value: object, low: int, high: int) -> None:
    """`value` is a whole number from `low` to `high`, or BadValue."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadValue(f"{name} is a whole number from {low} to {high}, got {value!r}")


def check_flag(name: str, value: object) -> None:
    """`value` is True or False, or BadValue."""
    if not isinstance(value, bool):
        raise BadValue(f"{name} is True or False, got {value!r}")


def check_some(name: str, value: object, known: Mapping[str, Any] | tuple[str, ...]) -> None:
    """`value` is a list or tuple of at least one of the `known` names, or BadValue."""
    fine = isinstance(value, list | tuple) and len(value) > 0 and all(part in known for part in value)
    if not fine:
        raise BadValue(f"{name} is a list of some of {', '.join(known)}, got {value!r}")

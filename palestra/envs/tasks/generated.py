"""Base class for tasks that are generated from a seed and a difficulty level.

A subclass defines `levels` (settings by level name), `check` (validates settings) and `generate` (generates an item
from a random generator and the settings). Constructor arguments override the level's settings, as in
`Arithmetic(level="hard", digits=6)`. Level "random" selects one of the other levels at random for each episode.
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
    """Base class for generated tasks; the module docstring lists the attributes that a subclass defines."""

    levels: ClassVar[Levels]  # from the easiest to the hardest
    shared = TaskEnv.shared | {"_overrides"}

    def __init__(self, level: str, overrides: Mapping[str, Any], /, **options: Unpack[TaskOptions]) -> None:
        """Combine the settings of `level` with `overrides`; an override of None is ignored."""
        super().__init__(**options)
        if level not in (*self.levels, RANDOM):
            raise BadValue(f"level must be one of {', '.join(self.levels)}, {RANDOM}; got {level!r}")
        self.level = level
        self._overrides = {name: value for name, value in overrides.items() if value is not None}
        for name in self.levels if level == RANDOM else (level,):
            self.check(**self.settings(name))

    @classmethod
    @abstractmethod
    def check(cls, *args: Any, **settings: Any) -> None:
        """Raise BadValue if a setting has an invalid value."""

    @classmethod
    @abstractmethod
    def generate(cls, rng: Random, *args: Any, **settings: Any) -> Item:
        """Return an item generated with `rng`; its key names the kind of question."""

    def settings(self, level: str) -> dict[str, Any]:
        """Return all settings at a level, with the overrides applied."""
        return {**self.levels[level], **self._overrides}

    def draw(self, options: dict[str, Any]) -> Item:  # noqa: ARG002  # generated tasks accept no reset options
        return self.generate(self.rng, **self.settings(self.draw_level()))

    def draw_level(self) -> str:
        """Return the level for this episode."""
        return self.rng.choice(tuple(self.levels)) if self.level == RANDOM else self.level


def check_int(name: str, value: object, low: int, high: int) -> None:
    """Raise BadValue unless `value` is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadValue(f"{name} must be a whole number from {low} to {high}, got {value!r}")


def check_bool(name: str, value: object) -> None:
    """Raise BadValue unless `value` is True or False."""
    if not isinstance(value, bool):
        raise BadValue(f"{name} must be True or False, got {value!r}")


def check_subset(name: str, value: object, allowed: Mapping[str, Any] | tuple[str, ...]) -> None:
    """Raise BadValue unless `value` is a non-empty list or tuple of names in `allowed`."""
    if not isinstance(value, list | tuple) or not value or not all(part in allowed for part in value):
        raise BadValue(f"{name} must be a non-empty list of names from {', '.join(allowed)}; got {value!r}")

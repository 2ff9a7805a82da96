"""How an agent writes actions of a Gymnasium space: as numbers, as text, or by name."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from palestra.errors import BadValue
from palestra.optional import require
from palestra.parsing import boxed, last_boxed

if TYPE_CHECKING:
    import gymnasium
    import numpy as np
else:
    gymnasium = require("gymnasium", extra="gymnasium")
    np = require("numpy", extra="gymnasium")

GymSpace: TypeAlias = "gymnasium.Space[Any]"

MOST_NUMBERS = 64  # an action of more is not a thing to write by hand
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


class ActionFormat(Protocol):
    """What stands in the box."""

    @property
    def says(self) -> str:
        """It in words, such as "a whole number from 0 to 3"."""

    @property
    def example(self) -> str: ...

    def read(self, text: str) -> Any:
        """The action, or None where `text` is not one."""

    def sample(self, rng: Random) -> str: ...


def format_of(space: GymSpace, names: Mapping[str, Any] | None) -> ActionFormat:
    """The format for `space`, or BadValue where an agent cannot be expected to write its actions."""
    if names is not None:
        return Names(space, names)
    if isinstance(space, gymnasium.spaces.Text):
        return FreeText(space)
    if isinstance(space, gymnasium.spaces.Discrete):
        return Numbers(space, space.start, space.start + space.n - 1, whole=True)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return Numbers(space, space.start, space.start + space.nvec - 1, whole=True)
    if isinstance(space, gymnasium.spaces.MultiBinary):
        return Numbers(space, np.zeros(space.shape), np.ones(space.shape), whole=True)
    if isinstance(space, gymnasium.spaces.Box):
        return Numbers(space, space.low, space.high, whole=np.issubdtype(space.dtype, np.integer))
    raise BadValue(f"no way to write actions of {space} is built in: give parse= and prompt=")


def _drawn(space: GymSpace, rng: Random) -> Any:
    space = copy.deepcopy(space)  # the env's own generator stays as it is
    space.seed(rng.getrandbits(32))
    return space.sample()


class Numbers:
    """One number or a row of them, each within its bounds."""

    def __init__(self, space: GymSpace, low: Any, high: Any, *, whole: bool) -> None:
        self._space = space
        self._whole = whole
        self._low = [_end(bound, whole) for bound in np.ravel(low)]
        self._high = [_end(bound, whole) for bound in np.ravel(high)]
        if len(self._low) > MOST_NUMBERS:
            raise BadValue(f"an action of {space} is {len(self._low)} numbers: give parse= and prompt=")

    @property
    def says(self) -> str:
        ranges = [f"from {low} to {high}" for low, high in zip(self._low, self._high, strict=True)]
        kind = "whole number" if self._whole else "number"
        if len(ranges) == 1:
            return f"a {kind} {ranges[0]}"
        bounds = f"each {ranges[0]}" if len(set(ranges)) == 1 else "; ".join(ranges)
        return f"{len(ranges)} {kind}s parted by blanks ({bounds})"

    @property
    def example(self) -> str:
        nearest = [min(max(0, low), high) for low, high in zip(self._low, self._high, strict=True)]
        return " ".join(map(str, nearest))

    def read(self, text: str) -> Any:
        fields = text[:2000].strip(" \t\n[]()").replace(",", " ").split()
        pattern = _WHOLE if self._whole else _NUMBER
        if len(fields) != len(self._low) or not all(pattern.fullmatch(field) for field in fields):
            return None
        values = [int(field) if self._whole else float(field) for field in fields]
        if not all(low <= value <= high for low, value, high in zip(self._low, values, self._high, strict=True)):
            return None
        if isinstance(self._space, gymnasium.spaces.Discrete):
            return values[0]
        return np.array(values, dtype=self._space.dtype).reshape(self._space.shape or ())

    def sample(self, rng: Random) -> str:
        return " ".join(map(str, np.ravel(_drawn(self._space, rng))))


class FreeText:
    """The text in the box, as it stands."""

    def __init__(self, space: gymnasium.spaces.Text) -> None:
        self._space = space
        self.example = self.sample(Random(0))

    @property
    def says(self) -> str:
        space = self._space
        return f"a text of {space.min_length} to {space.max_length} characters out of {space.characters}"

    def read(self, text: str) -> str | None:
        return text if text in self._space else None

    def sample(self, rng: Random) -> str:
        for _ in range(100):
            text = str(_drawn(self._space, rng))
            if last_boxed(boxed(text)) == text:  # by chance it may hold a brace that closes the box early
                return text
        raise BadValue(f"no text of {self._space} can be written in a box: give parse= and prompt=")


class Names:
    """A word for every action."""

    def __init__(self, space: GymSpace, names: Mapping[str, Any]) -> None:
        self._actions = {name.strip().casefold(): action for name, action in names.items()}
        self._names = list(names)
        if not names or len(self._actions) < len(names):
            raise BadValue(f"parse= needs names that differ in more than case and blanks, got {self._names}")
        for name, action in names.items():
            if action not in space:
                raise BadValue(f"parse={{{name!r}: {action!r}}}: {space} has no such action")

    @property
    def says(self) -> str:
        return f"one of: {', '.join(self._names)}"

    @property
    def example(self) -> str:
        return self._names[0]

    def read(self, text: str) -> Any:
        return self._actions.get(text.strip().casefold())

    def sample(self, rng: Random) -> str:
        return rng.choice(self._names)


def _end(bound: Any, whole: bool) -> int | float:
    """A bound as a plain number; open ends become the largest number the type can hold."""
    if whole:
        return int(bound)
    if np.isinf(bound):
        limits = np.finfo(bound.dtype)
        return float(limits.max if bound > 0 else limits.min)
    return float(str(bound))  # as it is printed, so that what the prompt says is what is accepted

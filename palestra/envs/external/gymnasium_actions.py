"""Text formats for actions in Gymnasium spaces: numbers, text, or names."""

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

MAX_NUMBERS = 64  # maximum count of numbers per action; for longer actions, the user must pass `parse`
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


class ActionFormat(Protocol):
    r"""Text format of an action inside `\boxed{}`."""

    @property
    def description(self) -> str:
        """Description for the prompt, such as "a whole number from 0 to 3"."""

    @property
    def example(self) -> str: ...

    def read(self, text: str) -> Any:
        """Return the action, or None if `text` is not a valid action."""

    def sample(self, rng: Random) -> str: ...


def format_of(space: GymSpace, names: Mapping[str, Any] | None) -> ActionFormat:
    """Return the format of actions in `space`; raise BadValue if the space has no suitable text format."""
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
    raise BadValue(f"there is no text format for actions in {space}; pass parse= and prompt=")


def _sample(space: GymSpace, rng: Random) -> Any:
    space = copy.deepcopy(space)  # the copy leaves the random state of the env's space unchanged
    space.seed(rng.getrandbits(32))
    return space.sample()


class Numbers:
    """Format for actions that consist of one or more numbers, each within its bounds."""

    def __init__(self, space: GymSpace, low: Any, high: Any, *, whole: bool) -> None:
        self._space = space
        self._whole = whole
        self._low = [_end(bound, whole) for bound in np.ravel(low)]
        self._high = [_end(bound, whole) for bound in np.ravel(high)]
        if len(self._low) > MAX_NUMBERS:
            raise BadValue(
                f"an action in {space} has {len(self._low)} numbers, but at most {MAX_NUMBERS} are supported; "
                "pass parse= and prompt="
            )

    @property
    def description(self) -> str:
        ranges = [f"from {low} to {high}" for low, high in zip(self._low, self._high, strict=True)]
        kind = "whole number" if self._whole else "number"
        if len(ranges) == 1:
            return f"a {kind} {ranges[0]}"
        bounds = f"each {ranges[0]}" if len(set(ranges)) == 1 else "; ".join(ranges)
        return f"{len(ranges)} {kind}s separated by spaces ({bounds})"

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
        return " ".join(map(str, np.ravel(_sample(self._space, rng))))


class FreeText:
    r"""Format for text actions: the content of `\boxed{}`, unchanged."""

    def __init__(self, space: gymnasium.spaces.Text) -> None:
        self._space = space
        self.example = self.sample(Random(0))

    @property
    def description(self) -> str:
        space = self._space
        return f"text of length {space.min_length} to {space.max_length}, using only the characters {space.characters}"

    def read(self, text: str) -> str | None:
        return text if text in self._space else None

    def sample(self, rng: Random) -> str:
        for _ in range(100):
            text = str(_sample(self._space, rng))
            if last_boxed(boxed(text)) == text:  # skip text with braces that would end the box early
                return text
        raise BadValue(f"no text in {self._space} can be written inside \\boxed{{}}; pass parse= and prompt=")


class Names:
    """Format in which every action has a name."""

    def __init__(self, space: GymSpace, names: Mapping[str, Any]) -> None:
        self._actions = {name.strip().casefold(): action for name, action in names.items()}
        self._names = list(names)
        if not names or len(self._actions) < len(names):
            raise BadValue(f"names in parse= must differ in more than case and outer spaces, got {self._names}")
        for name, action in names.items():
            if action not in space:
                raise BadValue(f"parse={{{name!r}: {action!r}}}: the value is not an action in {space}")

    @property
    def description(self) -> str:
        return f"one of: {', '.join(self._names)}"

    @property
    def example(self) -> str:
        return self._names[0]

    def read(self, text: str) -> Any:
        return self._actions.get(text.strip().casefold())

    def sample(self, rng: Random) -> str:
        return rng.choice(self._names)


def _end(bound: Any, whole: bool) -> int | float:
    """Return a bound as a Python number; an infinite bound becomes the largest finite value of its data type."""
    if whole:
        return int(bound)
    if np.isinf(bound):
        limits = np.finfo(bound.dtype)
        return float(limits.max if bound > 0 else limits.min)
    return float(str(bound))  # via the shortest decimal form, so that the prompt shows the exact bound

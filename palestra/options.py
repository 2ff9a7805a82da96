"""Declare and check typed options: the fields of config dataclasses, with help texts and accepted values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cache
from math import isfinite
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from palestra.errors import BadValue

NO_AUTO: Any = object()  # sentinel that means the default does not depend on the model
SIZES = (135e6, 1.7e9)  # numbers of parameters between which a default depends on the size


@dataclass(frozen=True, slots=True, kw_only=True)
class BySize:
    """Default value that depends on the number of a pretrained model's parameters.

    Between 135M and 1.7B parameters, its logarithm is interpolated over the logarithm of the size.
    """

    small: float  # for at most 135M parameters
    large: float  # for at least 1.7B parameters

    def at(self, parameters: int) -> float:
        """Return the value for a model with this number of parameters."""
        smallest, largest = SIZES
        place = math.log(min(largest, max(smallest, parameters)) / smallest) / math.log(largest / smallest)
        return float(f"{self.small ** (1 - place) * self.large**place:.3g}")

    def __str__(self) -> str:
        return f"{self.small:g} with up to 135M parameters, falling to {self.large:g} with 1.7B or more"


def option(
    default: Any,
    help: str,  # noqa: A002  # same name as in argparse
    *,
    flag: str = "",
    choices: Sequence[str] = (),
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    untrained: Any = NO_AUTO,
) -> Any:
    """Return a dataclass field with a help text and the values it accepts.

    `flag` is the command-line flag's name if it differs from the field's name. If `untrained` is passed, it
    is the default value for an untrained model, and `default` is the default value for a trained model.
    """
    metadata = {
        "help": help,
        "flag": flag,
        "choices": tuple(choices),
        "at_least": at_least,
        "at_most": at_most,
        "above": above,
        "below": below,
        "auto": None if untrained is NO_AUTO else (untrained, default),
    }
    return field(default=default if untrained is NO_AUTO else None, metadata=metadata)


def changed_default(owner: type, name: str, default: Any) -> Any:
    """Return a copy of the option `name` in the config class `owner` with another default, for a subclass."""
    item = next(item for item in fields(owner) if item.name == name)
    return field(default=default, metadata={**item.metadata, "auto": None})


def flat_name(item: Field[Any]) -> str:
    """Return an option's name as a keyword argument or flag, which is unique across all sections of a config."""
    return item.metadata.get("flag") or item.name


def kind_of(owner: type, name: str) -> type:
    """Return the type of an option: int, float, str, bool, tuple or dict."""
    hint = _type_hints(owner)[name]
    kind = get_origin(hint) or hint
    if kind is UnionType:  # such as bool | None
        kind = get_args(hint)[0]
    if kind is Literal:
        return str
    return kind if isinstance(kind, type) else get_args(hint)[0]


@cache
def _type_hints(owner: type) -> dict[str, Any]:
    return get_type_hints(owner)


def is_unset(config: Any, name: str) -> bool:
    """Return whether an option is not set yet, because its default depends on a model that is not loaded."""
    return getattr(config, name) is None


def check_options(config: Any) -> None:
    """Check the type and range of every option in a config; raise BadValue for the first invalid one."""
    for item in fields(config):
        value = getattr(config, item.name)
        if value is None and (item.metadata.get("auto") or item.default is None):
            continue  # the option is set later, once the model is known
        kind = kind_of(type(config), item.name)
        name = flat_name(item)
        if kind is float and type(value) is int:
            value = float(value)
            object.__setattr__(config, item.name, value)
        if kind is tuple and isinstance(value, (str, list)):
            value = (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(config, item.name, value)
        if type(value) is not kind:
            raise BadValue(f"{name} must be {_TYPE_NAMES.get(kind, kind.__name__)}, got {value!r}")
        _check_range(name, value, item.metadata)


_TYPE_NAMES = {
    str: "a string",
    int: "an integer",
    float: "a number",
    tuple: "a list of strings",
    dict: "a table",
    bool: "true or false",
}


def _check_range(name: str, value: Any, limits: Any) -> None:
    choices = limits.get("choices")
    if choices and value not in choices:
        raise BadValue(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    low, high, above, below = (limits.get(key) for key in ("at_least", "at_most", "above", "below"))
    if low is not None and high is not None and not low <= value <= high:
        raise BadValue(f"{name} must be in [{low:g}, {high:g}], got {value}")
    if low is not None and not value >= low:
        raise BadValue(f"{name} must be at least {low:g}, got {value}")
    if high is not None and not value <= high:
        raise BadValue(f"{name} must be at most {high:g}, got {value}")
    if above is not None and not value > above:
        raise BadValue(f"{name} must be greater than {above:g}, got {value}")
    if below is not None and not value < below:
        raise BadValue(f"{name} must be less than {below:g}, got {value}")
    if isinstance(value, float) and limits.get("help") and not isfinite(value):
        raise BadValue(f"{name} must be a finite number, got {value}")

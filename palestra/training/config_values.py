"""Values in a training config: defaults that depend on the model, weighted environment names, and object names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from palestra.algorithms.base import Algorithm
from palestra.errors import BadValue
from palestra.options import BySize, flat_name, is_unset

LORA_LR_FACTOR = 20  # LoRA needs a higher learning rate than full fine-tuning; published ratios are 10 to 100


def auto_values(config: Any, algorithm: Algorithm[Any], *, trained: bool, lora: bool) -> dict[str, Any]:
    """Return values for the unset options whose default depends on the model, unless it depends on the model's size."""
    values = {
        item.name: auto_value(item.metadata["auto"], flat_name(item), algorithm.defaults, trained=trained, lora=lora)
        for item in fields(config)
        if item.metadata.get("auto") and is_unset(config, item.name)
    }
    return {name: value for name, value in values.items() if not isinstance(value, BySize)}


def values_for_size(config: Any, parameters: int) -> dict[str, Any]:
    """Return values for the unset options whose default depends on the number of a pretrained model's parameters."""
    defaults = {item.name: item.metadata["auto"][1] for item in fields(config) if item.metadata.get("auto")}
    return {
        name: default.at(parameters)
        for name, default in defaults.items()
        if isinstance(default, BySize) and is_unset(config, name)
    }


def auto_value(pair: Any, name: str, defaults: Mapping[str, Any], *, trained: bool, lora: bool) -> Any:
    """Return an option's default value for an untrained or a trained model, with or without LoRA.

    With LoRA, learning rates do not depend on the size of the model.
    """
    value = defaults.get(name, pair)
    value = value[trained] if isinstance(value, tuple) else value
    if name in ("lr", "warm_lr") and lora and trained:
        return LORA_LR_FACTOR * (value.large if isinstance(value, BySize) else value)
    return value


def parse_weight(text: str) -> tuple[str, float]:
    """Split NAME[=WEIGHT] into the name and the weight (default 1).

    The `=` in a URL query parameter does not separate a weight: `http://host/ENV?a=5` has the default weight, and
    `http://host/ENV?a=5=2` has weight 2.
    """
    name, equals, weight = text.rpartition("=")
    if not equals or ("?" in text and re.split(r"[?&]", text)[-1].count("=") < 2):
        return text, 1.0
    try:
        number = float(weight)
    except ValueError as err:
        raise BadValue(f"--env takes NAME or NAME=WEIGHT with a number as weight, got {text!r}") from err
    if not number > 0:
        raise BadValue(f"the weight of an environment must be greater than 0, got {text!r}")
    return name, number


def qualified_name(value: str | Callable[..., Any]) -> str:
    """Return a string unchanged; for a class or function, return its module:name."""
    if isinstance(value, str):
        return value
    return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', type(value).__qualname__)}"

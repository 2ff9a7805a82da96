"""Command-line flags for typed options, and log levels for third-party libraries."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import Field
from typing import Any

from palestra.optional import require
from palestra.options import flat_name, kind_of

_METAVARS = {
    "env": "NAME[=WEIGHT]",
    "eval_env": "NAME",
    "data": "PATH",
    "import": "MODULE",
    "wrappers": "WRAPPER",
    "tools": "TOOL",
    "stop": "TEXT",
    "system": "TEXT",
    "out": "FOLDER",
    "teacher": "MODEL",
}
_ONE_FLAG_MANY_VALUES = ("tools", "wrappers")  # flags that take several values, for example --tools python search


def quiet_libraries() -> None:
    """Disable the progress bars and log messages of transformers, huggingface_hub and matplotlib.

    In a terminal, the progress bars for downloads stay enabled because a download may take minutes.
    """
    bars = require("huggingface_hub.utils", extra="hf")
    require("transformers.utils.logging", extra="hf").disable_progress_bar()
    if sys.stderr.isatty():
        bars.enable_progress_bars()
    for name in ("huggingface_hub", "matplotlib"):
        logging.getLogger(name).setLevel(logging.ERROR)


def add_flag(
    group: argparse._ArgumentGroup,
    owner: type,
    item: Field[Any],
    *,
    note: str = "",
    other_defaults: Sequence[str] = (),
) -> None:
    """Add the flag for a setting, with its default in the help text unless the text already states one.

    `note` and `other_defaults` follow in the same parentheses. An omitted flag is absent from the namespace, so that
    the recipe's value is used.
    """
    kind = kind_of(owner, item.name)
    name = flat_name(item)
    flag = "--" + name.replace("_", "-")
    options: dict[str, Any] = {"dest": option_dest(name), "default": argparse.SUPPRESS}
    choices = item.metadata.get("choices")
    metavar = {int: "N", float: "X", dict: "JSON"}.get(kind, name.rpartition("_")[2].upper())
    metavar = f"{{{','.join(choices)}}}" if choices else _METAVARS.get(name, metavar)
    if kind is tuple:
        many = {"nargs": "+", "action": "extend"} if name in _ONE_FLAG_MANY_VALUES else {"action": "append"}
        options |= {**many, "metavar": metavar}
    elif kind is bool:
        options |= {"action": argparse.BooleanOptionalAction}
    else:
        options |= {"type": str if kind is dict else kind, "metavar": metavar}
    details = [note] if note else []
    default = item.metadata.get("auto") or item.default
    if kind is not tuple and default not in ("", None) and "(default: " not in item.metadata["help"]:
        details.append(f"default: {default_text(default)}")
    details += other_defaults
    text = item.metadata["help"].removesuffix(".")
    suffix = f" ({'; '.join(details)})" if details else ""
    group.add_argument(flag, help=f"{text}{suffix}.".replace("%", "%%"), **options)


def default_text(default: Any) -> str:
    """Return the help text for a default; a pair contains the defaults for an untrained and a pretrained model."""
    if isinstance(default, tuple):
        untrained, pretrained = map(default_text, default)
        return untrained if untrained == pretrained else f"{untrained} for an untrained model, otherwise {pretrained}"
    return {True: "yes", False: "no"}[default] if isinstance(default, bool) else str(default)


def option_dest(name: str) -> str:
    """Return the attribute of the parsed arguments that holds an option, with a prefix to avoid collisions."""
    return f"set_{name}"


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given on the command line."""
    return {name.removeprefix("set_"): value for name, value in vars(args).items() if name.startswith("set_")}

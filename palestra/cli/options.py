"""What several verbs take: ids by pattern, keywords for an environment, silence of the libraries beneath."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from palestra.errors import BadValue, UnknownEnv
from palestra.optional import require
from palestra.registry import get_spec, list_envs


def add_keywords(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a keyword of the environment, such as --set max_turns=9 (repeatable)",
    )


def keywords(pairs: Iterable[str]) -> dict[str, Any]:
    """`KEY=VALUE` strings as keywords; a value is JSON where it can be, else text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise BadValue(f"--set takes KEY=VALUE, got {pair!r}")
        try:
            found[name] = json.loads(text)
        except json.JSONDecodeError:
            found[name] = text
    return found


def matching(patterns: Iterable[str]) -> list[str]:
    """Ids that fit the patterns, in catalog order: an id, `family:`, or a glob such as `game:*-easy`."""
    wanted = list(patterns)
    if not wanted:
        return list_envs()
    chosen: set[str] = set()
    for pattern in wanted:
        if pattern.endswith(":"):
            chosen.update(list_envs(pattern[:-1]))
        elif any(mark in pattern for mark in "*?["):
            fitting = [env_id for env_id in list_envs() if fnmatchcase(env_id, pattern)]
            if not fitting:
                raise UnknownEnv(f"no environment fits {pattern!r}. `palestra envs` lists all.")
            chosen.update(fitting)
        else:
            chosen.add(get_spec(pattern).id)
    return [env_id for env_id in list_envs() if env_id in chosen]


def quiet_libraries() -> None:
    """No progress bar for each file that transformers reads or writes, no talk of retries and font caches."""
    bars = require("huggingface_hub.utils", extra="hf")
    require("transformers.utils.logging", extra="hf").disable_progress_bar()
    if sys.stderr.isatty():
        bars.enable_progress_bars()  # of downloads, which take minutes
    for name in ("huggingface_hub", "matplotlib"):
        logging.getLogger(name).setLevel(logging.ERROR)

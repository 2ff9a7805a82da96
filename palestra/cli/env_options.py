"""Command-line options that select and configure environments, shared by several verbs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue, UnknownEnv

if TYPE_CHECKING:
    from palestra.registry import EnvFactory

NAME_HELP = "an id such as game:Sudoku-v0-easy, module:Class, or http://HOST:PORT/ID"


def add_import(parser: argparse._ActionsContainer) -> None:
    """Add `--import`; `palestra.cli.main` imports the modules before the verb runs."""
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="Python module to import first, for example one that registers your own environments, tools, "
        "agents or algorithms; repeatable.",
    )


def add_env_kwargs(parser: argparse._ActionsContainer) -> None:
    """Add `--set` and `--env-kwargs`, which set keyword arguments for the environment."""
    add_set(parser)
    parser.add_argument(
        "--env-kwargs",
        metavar="JSON",
        default="",
        help="Keyword arguments for the environment as a JSON object, for example '{\"max_turns\": 9}'.",
    )


def add_set(parser: argparse._ActionsContainer) -> None:
    """Add `--set`, which sets one keyword argument for the environment."""
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="Keyword argument for the environment, for example --set max_turns=9; overrides --env-kwargs; repeatable.",
    )


def add_tools_and_wrappers(parser: argparse._ActionsContainer) -> None:
    """Add `--tools`, `--max-tool-calls` and `--wrappers`."""
    parser.add_argument(
        "--tools",
        nargs="+",
        action="extend",
        default=[],
        metavar="TOOL",
        help="Tools that the agent may call: python, search, browser, mcp:FILE, the name of a plug-in, or "
        "module:function (default: none).",
    )
    parser.add_argument(
        "--max-tool-calls",
        type=int,
        metavar="N",
        help="Maximum number of tool calls per episode (default: no limit).",
    )
    parser.add_argument(
        "--wrappers",
        nargs="+",
        action="extend",
        default=[],
        metavar="WRAPPER",
        help="Wrappers to apply to the environment, innermost first: registered names such as "
        "'Horizon(turns=5)' or concat, or module:Class.",
    )


def add_timeouts(parser: argparse._ActionsContainer) -> None:
    """Add `--step-timeout` and `--reset-timeout`."""
    parser.add_argument(
        "--step-timeout",
        type=float,
        metavar="S",
        help="Maximum number of seconds per environment step; if exceeded, the episode fails (default: no limit).",
    )
    parser.add_argument(
        "--reset-timeout",
        type=float,
        metavar="S",
        help="Maximum number of seconds per environment reset; if exceeded, the episode fails (default: no limit).",
    )


def add_backend(parser: argparse._ActionsContainer) -> None:
    """Add `--env-backend` and `--env-workers`."""
    parser.add_argument(
        "--env-backend",
        choices=("inline", "thread", "process", "ray"),
        default="inline",
        help="Backend that runs the environments: inline (in this process), thread, process or ray; use 'process' for "
        "environments that need a lot of CPU time (default: inline).",
    )
    parser.add_argument(
        "--env-workers",
        type=int,
        metavar="N",
        help="Number of threads, processes or Ray actors that --env-backend starts (default: number of CPU cores).",
    )


def env_kwargs(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments from `--env-kwargs` and `--set`; `--set` takes precedence."""
    return parse_kwargs(args.env_kwargs) | single_kwargs(args.set)


def parse_kwargs(text: str) -> dict[str, Any]:
    """Return the keyword arguments in the value of `--env-kwargs`."""
    if not text:
        return {}
    try:
        kwargs = json.loads(text)
    except json.JSONDecodeError as err:
        raise BadValue(f"--env-kwargs must be a JSON object, got {text!r}: {err}") from err
    if not isinstance(kwargs, dict):
        raise BadValue(f"--env-kwargs must be a JSON object, got {text!r}")
    return kwargs


def single_kwargs(pairs: Iterable[str]) -> dict[str, Any]:
    """Return the keyword arguments in the values of `--set`."""
    kwargs: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise BadValue(f"--set takes KEY=VALUE, got {pair!r}")
        try:
            kwargs[name] = json.loads(text)
        except json.JSONDecodeError:
            kwargs[name] = text
    return kwargs


def make_kwargs(args: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments for `palestra.make` from the shared options."""
    options = {"tools": args.tools, "max_tool_calls": args.max_tool_calls, "wrappers": args.wrappers}
    return {**env_kwargs(args), **{name: value for name, value in options.items() if value}}


def env_factory(name: str, args: argparse.Namespace) -> EnvFactory:
    """Return a factory for the environment `name` with the shared options; raise UnknownEnv for an unknown name."""
    from palestra.registry import EnvFactory

    return EnvFactory.of(
        name,
        kwargs=env_kwargs(args),
        tools=args.tools,
        max_tool_calls=args.max_tool_calls,
        wrappers=args.wrappers,
    )


def is_pattern(name: str) -> bool:
    """Return True if `name` is a family (`game:`) or a glob (`game:*-easy`) rather than a single environment."""
    return "://" not in name and (name.endswith(":") or any(mark in name for mark in "*?["))


def expand_names(names: Iterable[str]) -> list[str]:
    """Expand families and globs to the matching ids, in catalog order; an empty `names` expands to every id."""
    from palestra.registry import get_spec, list_envs

    names = list(names)
    if not names:
        return list_envs()
    expanded: dict[str, None] = {}
    for name in names:
        if not is_pattern(name):
            expanded[get_spec(name).id] = None
        elif name.endswith(":"):
            expanded.update(dict.fromkeys(list_envs(name[:-1])))
        else:
            matches = [env_id for env_id in list_envs() if fnmatchcase(env_id, name)]
            if not matches:
                raise UnknownEnv(f"no environment matches {name!r}. `palestra envs` lists all ids.")
            expanded.update(dict.fromkeys(matches))
    order = {env_id: place for place, env_id in enumerate(list_envs())}
    return sorted(expanded, key=lambda name: order.get(name, len(order)))

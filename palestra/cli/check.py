"""`palestra check ENV...`: test that environments satisfy the contract and that servers implement the protocol."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from palestra.cli.env_options import add_env_kwargs, add_import, env_kwargs, expand_names
from palestra.errors import BadValue, ConformanceError, EnvFailed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "envs",
        nargs="+",
        metavar="ENV",
        help="Environment or server to test: an id, module:Class, a family such as game:, a pattern such as "
        "'*-easy', the URL of an environment, or the URL of a server.",
    )
    parser.add_argument(
        "--episodes",
        type=int,
        default=40,
        metavar="N",
        help="Number of episodes to play with each player, expert and random (default: 40).",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="Maximum number of seconds per player, after which no further episode is started (default: 10).",
    )
    parser.add_argument(
        "--step-timeout",
        type=float,
        default=20.0,
        metavar="S",
        help="Maximum number of seconds per environment call; a call that takes longer is reported as a hang "
        "(default: 20).",
    )
    parser.add_argument(
        "--reset-timeout",
        type=float,
        metavar="S",
        help="Maximum number of seconds per environment reset (default: the value of --step-timeout).",
    )
    parser.add_argument(
        "--json", action="store_true", help="Print one JSON object per environment or server, each on its own line."
    )
    options = parser.add_argument_group("environment")
    add_import(options)
    add_env_kwargs(options)


def run(args: argparse.Namespace) -> int:
    from palestra.registry import get_spec

    if args.episodes < 1:
        raise BadValue(f"--episodes must be at least 1, got {args.episodes}")
    servers = [name for name in args.envs if _is_server(name)]
    failed = sum(_server_fails(url, args.json) for url in servers)
    names = [name for name in args.envs if name not in servers]
    kwargs = env_kwargs(args)
    for name in expand_names(names) if names else []:
        if get_spec(name).needs_data and name not in args.envs and not kwargs:
            reason = "needs data: pass the full id to check it anyway, or --set path=FILE"
            print(json.dumps({"id": name, "skipped": reason}) if args.json else f"{name}: skipped, {reason}")
        else:
            failed += _env_fails(name, kwargs, args)
        sys.stdout.flush()  # show results immediately even if stdout is a pipe
    return 1 if failed else 0


def _env_fails(name: str, kwargs: dict[str, Any], args: argparse.Namespace) -> bool:
    """Test one environment, print the result and return True if it failed."""
    from palestra.conformance import check_env

    row: dict[str, Any] = {"id": name}
    try:
        report = check_env(
            name,
            kwargs=kwargs,
            episodes=args.episodes,
            seconds=args.seconds,
            step_timeout=args.step_timeout,
            reset_timeout=args.reset_timeout,
        )
    except ConformanceError as err:
        row |= {"passed": False, **vars(err)}
        print(json.dumps(row) if args.json else f"{name}: FAILED\n  {err}")
        return True
    row |= {
        "passed": True,
        "checks": report.passed,
        "notes": report.notes,
        "expert": None if report.expert is None else report.expert.value,
        "random": None if report.random is None else report.random.value,
        "seconds": round(report.seconds, 3),
    }
    print(json.dumps(row) if args.json else str(report))
    return False


def _is_server(name: str) -> bool:
    """Return True for the URL of a server and False for the URL of an environment, which ends with an id."""
    scheme, separator, rest = name.partition("://")
    return bool(separator) and scheme in ("http", "https") and ":" not in rest.partition("?")[0].partition("/")[2]


def _server_fails(url: str, as_json: bool) -> bool:
    """Test the protocol of a server, print the result and return True if it failed."""
    import os

    from palestra.optional import require

    require("msgspec", extra="serve")
    from palestra.server.conformance import check_server

    try:
        passed = check_server(url, token=os.environ.get("PALESTRA_TOKEN"))
    except OSError as err:
        raise EnvFailed(f"no server responds at {url}: {err}") from err
    except ConformanceError as err:
        print(json.dumps({"server": url, "passed": False, **vars(err)}) if as_json else f"{url}: FAILED\n  {err}")
        return True
    text = "\n".join([f"{url} passed all checks:", *(f"  {name}" for name in passed)])
    print(json.dumps({"server": url, "passed": True, "checks": passed}) if as_json else text)
    return False

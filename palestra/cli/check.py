"""`palestra check ENV...`: test that environments satisfy the contract and that servers implement the protocol."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from palestra.cli.env_options import add_env_kwargs, add_import, env_kwargs, expand_names
from palestra.cli.interrupts import deferred_interrupts
from palestra.errors import BadValue, ConformanceError, EnvFailed
from palestra.machine import usable_cores
from palestra.progress import phase


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
        help="Number of episodes to play with the expert, and again with the random player (default: 40).",
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
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="Number of processes that test environments in parallel (default: number of CPU cores).",
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
    envs = expand_names(names) if names else []
    skipped = {name for name in envs if get_spec(name).needs_data and name not in args.envs and not kwargs}
    bad: list[str] = []
    with _results([name for name in envs if name not in skipped], kwargs, args) as results:
        for name in envs:
            if name in skipped:
                reason = "needs data: pass the full id to check it anyway, or --set path=FILE"
                print(json.dumps({"id": name, "skipped": reason}) if args.json else f"{name}: skipped, {reason}")
            else:
                with phase(f"checking {name}" + (f" ({envs.index(name) + 1} of {len(envs)})" if len(envs) > 1 else "")):
                    passed, text = next(results)
                print(text)
                bad += [] if passed else [name]
            sys.stdout.flush()  # show results immediately even if stdout is a pipe
    if len(envs) > 1 and not args.json:
        print(f"\n{len(envs) - len(skipped) - len(bad)} passed, {len(bad)} failed, {len(skipped)} skipped")
        for name in bad:
            print(f"  failed: {name}")
    return 1 if failed or bad else 0


@contextmanager
def _results(
    names: list[str], kwargs: dict[str, Any], args: argparse.Namespace
) -> Iterator[Iterator[tuple[bool, str]]]:
    """Return an iterator over the results for `names`, which are tested in several processes."""
    workers = min(len(names), usable_cores() if args.workers is None else args.workers)
    limits = {name: getattr(args, name) for name in ("episodes", "seconds", "step_timeout", "reset_timeout")}
    test = partial(_test_env, kwargs=kwargs, limits=limits, as_json=args.json)
    if workers <= 1:
        yield map(test, names)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    from palestra.plugins import import_modules

    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=import_modules, initargs=(args.imports,))
    try:
        with deferred_interrupts():  # only this process handles Ctrl-C
            results = pool.map(test, names)
        yield results
    except BaseException:
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _test_env(name: str, *, kwargs: dict[str, Any], limits: dict[str, Any], as_json: bool) -> tuple[bool, str]:
    """Test one environment; return whether it passed, and the text to print."""
    from palestra.conformance import check_env

    row: dict[str, Any] = {"id": name}
    try:
        report = check_env(name, kwargs=kwargs, **limits)
    except ConformanceError as err:
        row |= {"passed": False, **vars(err)}
        return False, json.dumps(row) if as_json else f"{name}: FAILED\n  {err}"
    row |= {
        "passed": True,
        "checks": report.passed,
        "notes": report.notes,
        "expert": None if report.expert is None else report.expert.value,
        "random": None if report.random is None else report.random.value,
        "seconds": round(report.seconds, 3),
    }
    return True, json.dumps(row) if as_json else str(report)


def _is_server(name: str) -> bool:
    """Return True for the URL of a server and False for the URL of an environment, which ends with an id."""
    scheme, separator, rest = name.partition("://")
    return bool(separator) and scheme in ("http", "https") and ":" not in rest.partition("?")[0].partition("/")[2]


def _server_fails(url: str, as_json: bool) -> bool:
    """Test the protocol of a server, print the result and return True if it failed."""
    from palestra.optional import require

    require("msgspec", extra="serve")
    from palestra.server.conformance import check_server

    try:
        with phase(f"checking {url}"):
            passed = check_server(url, token=os.environ.get("PALESTRA_TOKEN"))
    except OSError as err:
        raise EnvFailed(f"no server responds at {url}: {err}") from err
    except ConformanceError as err:
        print(json.dumps({"server": url, "passed": False, **vars(err)}) if as_json else f"{url}: FAILED\n  {err}")
        return True
    text = "\n".join([f"{url} passed all checks:", *(f"  {name}" for name in passed)])
    print(json.dumps({"server": url, "passed": True, "checks": passed}) if as_json else text)
    return False

"""`palestra check ID...`: prove the laws, or show which one is broken and how to see it. Of a server's protocol too."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from palestra.cli.options import add_keywords, keywords, matching
from palestra.conformance import check_env
from palestra.errors import BadValue, ConformanceError, EnvFailed
from palestra.registry import get_spec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids",
        nargs="+",
        metavar="ID",
        help="an id, a family (`game:`), a pattern (`'*-easy'`), or the address of a server",
    )
    parser.add_argument("--episodes", type=int, default=40, metavar="N", help="episodes of each player (40)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="time for each player's episodes (10)")
    parser.add_argument("--json", action="store_true", help="a JSON object an id, a line each")
    add_keywords(parser)


def run(args: argparse.Namespace) -> int:
    if args.episodes < 1:
        raise BadValue(f"--episodes is at least 1, got {args.episodes}")
    servers = [given for given in args.ids if "://" in given]
    broken = sum(_broken_server(url, args.json) for url in servers)
    ids = [given for given in args.ids if given not in servers]
    for env_id in matching(ids) if ids else []:
        if get_spec(env_id).needs_data and env_id not in args.ids and not args.set:
            skipped = "it needs data; name it, or --set path=FILE"
            print(json.dumps({"id": env_id, "skipped": skipped}) if args.json else f"{env_id}: skipped, {skipped}")
            continue
        found: dict[str, Any] = {"id": env_id}
        try:
            report = check_env(env_id, kwargs=keywords(args.set), episodes=args.episodes, seconds=args.seconds)
        except ConformanceError as err:
            broken += 1
            text = f"{env_id}: BROKEN\n  {err}"
            found |= {"sound": False, **vars(err)}
        else:
            text = str(report)
            found |= {
                "sound": True,
                "passed": report.passed,
                "notes": report.notes,
                "expert": None if report.expert is None else report.expert.value,
                "random": None if report.random is None else report.random.value,
                "seconds": round(report.seconds, 3),
            }
        print(json.dumps(found) if args.json else text)
        sys.stdout.flush()  # a long run shows as it goes
    return 1 if broken else 0


def _broken_server(url: str, as_json: bool) -> bool:
    """Try the laws of the protocol on a server."""
    import os

    from palestra.optional import require

    require("msgspec", extra="serve")
    from palestra.server.conformance import check_server

    try:
        kept = check_server(url, token=os.environ.get("PALESTRA_TOKEN"))
    except OSError as err:
        raise EnvFailed(f"no server answers at {url}: {err}") from err
    except ConformanceError as err:
        found = {"server": url, "sound": False, **vars(err)}
        print(json.dumps(found) if as_json else f"{url}: BROKEN\n  {err}")
        return True
    shown = "\n".join([f"{url} keeps the protocol:", *(f"  {law}" for law in kept)])
    print(json.dumps({"server": url, "sound": True, "passed": kept}) if as_json else shown)
    return False

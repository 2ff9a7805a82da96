"""`palestra envs`: a table by family, or JSON."""

from __future__ import annotations

import argparse
import json
from itertools import groupby

from palestra.cli.options import matching
from palestra.registry import get_spec
from palestra.spec import EnvSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids", nargs="*", metavar="ID", help="an id, a family (`game:`) or a pattern (`'*-easy'`); all by default"
    )
    parser.add_argument("--json", action="store_true", help="the whole specs as JSON")


def run(args: argparse.Namespace) -> int:
    specs = [get_spec(env_id) for env_id in matching(args.ids)]
    if args.json:
        print(json.dumps([spec.to_json() for spec in specs], indent=2))
        return 0
    width = max(len(spec.id) for spec in specs)
    for family, group in groupby(specs, key=lambda spec: spec.parts.family):
        members = list(group)
        print(f"{family} ({len(members)})")
        print(f"  {'id':<{width}}  {'turns':>5}  {'expert':>6}  {'random':>6}  task")
        for spec in members:
            print(f"  {spec.id:<{width}}  {_turns(spec):>5}  {_rate(spec.expert_success):>6}  ", end="")
            print(f"{_rate(spec.random_success):>6}  {spec.summary}{' [data]' if spec.needs_data else ''}")
        print()
    print("expert, random: success rates of the reference solver and of the random player.")
    if any(spec.needs_data for spec in specs):
        print("[data]: its rows are downloaded first, or come from a file or folder: --set path=FILE.")
    print("palestra play ID plays one; palestra check ID proves it sound.")
    return 0


def _turns(spec: EnvSpec) -> str:
    if "max_turns" not in spec.kwargs:
        return "-"
    turns = spec.kwargs["max_turns"]
    return "drawn" if turns is None else str(turns)


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3f}"

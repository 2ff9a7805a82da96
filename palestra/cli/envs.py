"""`palestra envs`: list environments as a table or as JSON."""

from __future__ import annotations

import argparse
import json
from itertools import groupby

from palestra.cli.env_options import add_import, expand_names
from palestra.registry import resolve_spec
from palestra.spec import RATES_REASONS, EnvSpec

PLAYERS = ("expert", "random", "echo", "constant")
_REASONS = {
    "few_answers": "the task has few possible answers, so players without skill solve many episodes.",
    "easy_by_design": "the task is meant to be easy, so players without skill solve many episodes.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids",
        nargs="*",
        metavar="ENV",
        help="Environments to list: an id, a family such as game:, or a pattern such as '*-easy' (default: all).",
    )
    parser.add_argument(
        "--json", action="store_true", help="Print the complete specification of each environment as JSON."
    )
    add_import(parser)


def run(args: argparse.Namespace) -> int:
    specs = [resolve_spec(name) for name in expand_names(args.ids)]
    if args.json:
        print(json.dumps([spec.to_json() for spec in specs], indent=2))
        return 0
    width = max(len(spec.id) for spec in specs)
    for family, group in groupby(specs, key=lambda spec: spec.parts.family):
        members = list(group)
        print(f"{family} ({len(members)})")
        header = "".join(f"  {player:>8}" for player in PLAYERS)
        print(f"  {'id':<{width}}  {'turns':>6}{header}  task")
        for spec in members:
            rates = "".join(f"  {_rate(getattr(spec, f'{player}_success')):>8}" for player in PLAYERS)
            print(f"  {spec.id:<{width}}  {_turns(spec):>6}{rates}  {spec.summary}{_labels(spec)}")
        print()
    print("expert, random: success rates of the reference solver and of the random player.")
    print("echo, constant: success rates of replies that copy a part of the prompt or are always the same.")
    for reason in RATES_REASONS:
        if any(spec.rates_reason == reason for spec in specs):
            print(f"[{reason}]: {_REASONS[reason]}")
    if any(spec.needs_data for spec in specs):
        print("[data]: needs a dataset, which is downloaded, or read from a file with --set path=FILE.")
    print("Play an environment with `palestra play ENV`; test it with `palestra check ENV`.")
    return 0


def _labels(spec: EnvSpec) -> str:
    return "".join(f" [{label}]" for label in ("data" if spec.needs_data else "", spec.rates_reason) if label)


def _turns(spec: EnvSpec) -> str:
    if "max_turns" not in spec.kwargs:
        return "-"
    turns = spec.kwargs["max_turns"]
    return "varies" if turns is None else str(turns)


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3f}"

"""`palestra envs`: list environment families, or environments as a table or as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import groupby
from textwrap import shorten

from palestra.cli.env_options import add_import, expand_names, is_pattern
from palestra.cli.terminal import fitted, line_width
from palestra.errors import UnknownEnv
from palestra.registry import list_envs, resolve_spec
from palestra.spec import RATES_REASONS, EnvSpec
from palestra.suggestions import did_you_mean

FAMILIES = {  # family -> one line for the overview
    "game": "puzzles and guessing games with several turns",
    "math": "arithmetic, word problems and datasets of math problems",
    "code": "programs that are graded by hidden tests",
    "qa": "questions about a generated encyclopedia, and question datasets",
    "logic": "logic puzzles",
    "rg": "reasoning tasks from the reasoning-gym library",
    "eval": "published evaluation sets, which are downloaded",
    "babyai": "instructions in a grid world",
    "textcraft": "crafting with Minecraft recipes",
    "webshop": "buying the product that an instruction describes",
    "sciworld": "science experiments in a text world (needs Java)",
    "sql": "questions about databases, answered by queries",
    "search": "multi-hop questions, answered with a search engine",
    "miniwob": "small tasks on web pages in a real browser (needs Chromium)",
    "web": "tasks on generated sites, or on your own, in a real browser (needs Chromium)",
    "webarena": "WebArena's tasks, on its sites, which you have to run (needs Chromium)",
}
PLAYERS = ("expert", "random", "echo", "constant")
MIN_TASK = 20  # characters for the description of a task in a narrow terminal, which shows fewer rates instead
MIN_WORDS = 8  # characters below which a description is omitted
_REASONS = {
    "few_answers": "the task has few possible answers, so players without skill solve many episodes.",
    "easy_by_design": "the task is meant to be easy, so players without skill solve many episodes.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="ENV",
        help="Environments to list: an id, a family such as game:, a pattern such as '*-easy', or words that occur in "
        "the id or the description (default: an overview of the families).",
    )
    parser.add_argument("--all", action="store_true", help="List every environment in every family.")
    parser.add_argument(
        "--json", action="store_true", help="Print the complete specification of each environment as JSON."
    )
    add_import(parser)


def run(args: argparse.Namespace) -> int:
    if not (args.names or args.all or args.json):
        _print_families()
        return 0
    specs = [resolve_spec(name) for name in list_envs()] if args.all or not args.names else _find(args.names)
    if args.json:
        print(json.dumps([spec.to_json() for spec in specs], indent=2))
    else:
        _print_table(specs)
    return 0


def _find(names: Sequence[str]) -> list[EnvSpec]:
    """Return the environments that match `names`.

    Ids and patterns select environments; all other names, including the start of an id such as game:Sudoku, are search
    words, which must all occur in the id or summary.
    """
    ids = [env_id.lower() for env_id in list_envs()]
    starts = {name for name in names if ":" in name and any(env_id.startswith(name.lower()) for env_id in ids)}
    starts -= {name for name in starts if name.lower() in ids or is_pattern(name)}
    words = [name.lower() for name in names if name in starts or not (":" in name or is_pattern(name))]
    selected = [name for name in names if name not in starts and (":" in name or is_pattern(name))]
    specs = [resolve_spec(name) for name in expand_names(selected)]
    matches = [spec for spec in specs if all(word in f"{spec.id} {spec.summary}".lower() for word in words)]
    if not matches:
        known = {part for spec in specs for part in (spec.parts.family, spec.parts.name)}
        hint = "".join(dict.fromkeys(did_you_mean(word, sorted(known)) for word in words))
        given = " and ".join(map(repr, words))
        raise UnknownEnv(f"no environment contains {given}.{hint} `palestra envs` lists all families.")
    return matches


def _print_families() -> None:
    families: dict[str, list[str]] = {}
    for name in list_envs():
        families.setdefault(name.partition(":")[0], []).append(name)
    width = max(map(len, families)) + 1
    for family, names in families.items():
        text = FAMILIES.get(family) or resolve_spec(names[0]).summary
        print(fitted(f"{family + ':':<{width}}  {len(names):>5}  {text}", indent=width + 9))
    count = sum(map(len, families.values()))
    print(
        fitted(
            f"\n{count} environments in {len(families)} families. List one family with `palestra envs game:`,\n"
            "search with `palestra envs sudoku`, and list everything with `palestra envs --all`."
        )
    )


def _print_table(specs: Sequence[EnvSpec]) -> None:
    width = max(len(spec.id) for spec in specs)
    columns = line_width() or 0
    room = columns - width - 12 - MIN_TASK if columns else 10 * len(PLAYERS)
    players = PLAYERS if room >= 10 * len(PLAYERS) else PLAYERS[:2] if room >= 20 else ()
    for family, group in groupby(specs, key=lambda spec: spec.parts.family):
        members = list(group)
        print(f"{family} ({len(members)})")
        header = "".join(f"  {player:>8}" for player in players)
        print(f"  {'id':<{width}}  {'turns':>6}{header}  task")
        for spec in members:
            rates = "".join(f"  {_rate(getattr(spec, f'{player}_success')):>8}" for player in players)
            line = f"  {spec.id:<{width}}  {_turns(spec):>6}{rates}  "
            task = f"{spec.summary}{_labels(spec)}"
            if columns:
                left = columns - len(line)
                task = shorten(task, left, placeholder=" ...") if left >= MIN_WORDS else ""
            print(line + task)
        print()
    notes = ["expert, random: success rates of the reference solver and of the random player."] if players else []
    if len(players) > 2:
        notes.append("echo, constant: success rates of replies that copy a part of the prompt or are always the same.")
    given = {spec.rates_reason for spec in specs}
    notes += [f"[{reason}]: {_REASONS[reason]}" for reason in RATES_REASONS if reason in given]
    if any(spec.needs_data for spec in specs):
        notes.append("[data]: needs a dataset, which is downloaded, or read from a file with --set path=FILE.")
    notes.append("Play an environment with `palestra play ENV`; test it with `palestra check ENV`.")
    print(fitted("\n".join(notes)))


def _labels(spec: EnvSpec) -> str:
    return "".join(f" [{label}]" for label in ("data" if spec.needs_data else "", spec.rates_reason) if label)


def _turns(spec: EnvSpec) -> str:
    if "max_turns" not in spec.kwargs:
        return "-"
    turns = spec.kwargs["max_turns"]
    return "varies" if turns is None else str(turns)


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.3f}"

"""`palestra eval [SUITE|ID ...]`: play tasks with any agent, go on after a stop, and say what can be trusted of it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.cli import EXIT_INFRASTRUCTURE, EXIT_INTERRUPTED, EXIT_OK
from palestra.cli.options import add_keywords, keywords, matching, quiet_libraries
from palestra.errors import BadValue

if TYPE_CHECKING:
    from palestra.evals.agents import ModelSettings
    from palestra.evals.run import EvalSettings, Evaluation
    from palestra.evals.suite import Suite

MAX_FAILED = 0.05
_EPILOG = """\
examples:
  palestra eval --env game:Sokoban-v0-easy --model http://localhost:8000/v1 -n 200 -k 4 --out runs/a
  palestra eval suite:games --agent expert --json
  palestra eval --env game:Sokoban-v0-easy --model runs/trained -n 256 --seed 900000    a run folder is a model
  palestra eval my_suite.toml --agent my_module:play                                    a Python function plays
  palestra eval --suites                                                                what suites there are

The same command goes on where an evaluation was stopped: no episode is played twice, and what failed is tried again.
exit codes: 0 done; 2 a mistake in the command; 3 more than --max-failed of the episodes have no result; 130 interrupted
docs/evaluation.md explains the numbers and the folder.
"""
_SAMPLING = (
    ("temperature", float, "X", "0: always the likeliest token"),
    ("top_p", float, "X", "sample among the likeliest tokens that make up this share"),
    ("top_k", int, "N", "sample among this many tokens; 0: all"),
    ("min_p", float, "X", "leave out tokens less likely than this share of the likeliest"),
    ("max_tokens", int, "N", "of a reply"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "palestra eval [SUITE|ID ...] [--env ID ...] (--model MODEL | --agent AGENT) [--SETTING VALUE ...]"
    parser.epilog = _EPILOG
    parser.allow_abbrev = False
    parser.add_argument(
        "targets", nargs="*", metavar="SUITE|ID", help="suite:NAME, a TOML file, an id, or a pattern ('game:*-easy')"
    )
    parser.add_argument("--env", action="append", default=[], metavar="ID", help="an id or a pattern (repeatable)")
    parser.add_argument("--suites", action="store_true", help="list the suites that come with the package")
    who = parser.add_argument_group("who plays").add_mutually_exclusive_group()
    who.add_argument(
        "--model", metavar="MODEL", help="a folder, a run's folder, a hub id, default:SIZE, or a server's http address"
    )
    who.add_argument("--agent", metavar="AGENT", help="expert, random, or module:name (a Python function or Agent)")
    how = parser.add_argument_group("how a model is asked")
    for name, kind, mark, text in _SAMPLING:
        how.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=mark, help=text)
    how.add_argument("--stop", action="append", metavar="TEXT", help="a reply ends before this (repeatable)")
    how.add_argument("--system", metavar="TEXT", help="a system message")
    how.add_argument("--style", choices=("plain", "react", "tools"), default="plain", help="(plain)")
    how.add_argument("--max-context", type=int, metavar="N", help="a smaller window than the model's, in tokens")
    how.add_argument("--api-model", default="", metavar="NAME", help="which of a server's models")
    how.add_argument(
        "--api-key-env", default="OPENAI_API_KEY", metavar="VARIABLE", help="where the key stands (OPENAI_API_KEY)"
    )
    how.add_argument("--tokenizer", default="", metavar="FOLDER", help="the server's: exact tokens where it shows them")
    how.add_argument("--device", default="auto", help="of a model in process (auto)")
    how.add_argument("--dtype", help="float32, bfloat16 or float16 (float32 on a CPU, else bfloat16)")
    what = parser.add_argument_group("what is played")
    what.add_argument("-n", type=int, metavar="N", help="tasks of each environment (100, or the suite's)")
    what.add_argument("-k", type=int, metavar="K", help="attempts at each task (1, or the suite's)")
    what.add_argument("--seed", type=int, metavar="S", help="tasks have the seeds from here on (0, or the suite's)")
    what.add_argument("--turns", type=int, metavar="N", help="cut episodes short after so many turns")
    add_keywords(what)
    running = parser.add_argument_group("running")
    running.add_argument("--out", metavar="FOLDER", help="where to keep it (runs/eval-WHAT-WHO)")
    running.add_argument("--overwrite", action="store_true", help="delete the evaluation in --out and start over")
    running.add_argument("--concurrency", type=int, default=32, metavar="N", help="episodes at once (32)")
    running.add_argument("--retries", type=int, default=2, metavar="N", help="of an episode something broke in (2)")
    running.add_argument("--call-timeout", type=float, metavar="S", help="seconds for one reset, step or reply")
    running.add_argument(
        "--max-failed", type=float, default=MAX_FAILED, metavar="X", help=f"share without a result ({MAX_FAILED})"
    )
    running.add_argument("--price-in", type=float, metavar="X", help="dollars for a million tokens read")
    running.add_argument("--price-out", type=float, metavar="X", help="dollars for a million tokens written")
    shown = parser.add_argument_group("output").add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="the whole summary as JSON")
    shown.add_argument("--markdown", action="store_true", help="the table as Markdown")
    shown.add_argument("--quiet", action="store_true", help="nothing but errors")


def run(args: argparse.Namespace) -> int:
    from palestra.evals.agents import EvaluatedAgent
    from palestra.evals.folder import default_folder
    from palestra.evals.run import run_evaluation

    if args.suites:
        return _list_suites()
    who = args.model or args.agent
    if who is None:
        raise BadValue("say who plays: --model MODEL, or --agent expert, random or module:name")
    if not 0 <= args.max_failed <= 1:
        raise BadValue(f"--max-failed is a share from 0 to 1, got {args.max_failed}")
    if args.concurrency < 1 or args.retries < 0:
        raise BadValue(f"--concurrency is at least 1, --retries 0 or more, got {args.concurrency} and {args.retries}")
    suite = chosen(args)
    player = EvaluatedAgent(who, _model_settings(args, who))
    if args.model is not None and player.kind in ("player", "python"):
        raise BadValue(f"{who} is no model; give it as --agent {who}")
    if player.kind in ("hf", "default"):
        quiet_libraries()
    folder = Path(args.out) if args.out else default_folder(suite.name, who)
    settings = running_settings(args)
    try:
        done = asyncio.run(
            run_evaluation(suite, player, folder, settings=settings, overwrite=args.overwrite, command=_command())
        )
    except KeyboardInterrupt:
        print(f"\nstopped; finished episodes are kept in {folder}, and the same command goes on", file=sys.stderr)
        _write_what_there_is(folder, settings)
        return EXIT_INTERRUPTED
    show(args, done)
    return verdict(done, args.max_failed)


# From flags to what is played, and how


def chosen(args: argparse.Namespace) -> Suite:
    """The suites and ids of the command as one suite, with its flags."""
    from palestra.evals.suite import Suite, load_suite, suite_entry, with_overrides

    names = [*args.targets, *args.env]
    if not names:
        raise BadValue("name what to play: --env ID, suite:NAME or a TOML file. `palestra eval --suites` lists suites.")
    parts: list[Suite] = []
    for name in names:
        if name.startswith("suite:") or name.endswith(".toml"):
            parts.append(load_suite(name))
        else:
            found = matching([name]) if any(mark in name for mark in "*?[") or name.endswith(":") else [name]
            parts += [Suite(name=env_id, entries=(suite_entry(env_id, where="the command"),)) for env_id in found]
    together = " + ".join(dict.fromkeys(part.name for part in parts)) if len(parts) <= 3 else f"{len(parts)} parts"
    suite = Suite(name=together, entries=tuple(one for part in parts for one in part.entries))
    given = keywords(args.set)
    suite = with_overrides(suite, kwargs=given, n=args.n, k=args.k, seed=args.seed, turns=args.turns)
    flags = _sampling_flags(args)
    entries = (
        replace(one, sampling={key: value for key, value in one.sampling.items() if key not in flags})
        for one in suite.entries
    )
    return replace(suite, entries=tuple(entries))


def _sampling_flags(args: argparse.Namespace) -> dict[str, Any]:
    found = {name: getattr(args, name) for name, *_ in _SAMPLING if getattr(args, name) is not None}
    return {**found, "stop": tuple(args.stop)} if args.stop else found


def _model_settings(args: argparse.Namespace, who: str) -> ModelSettings:
    from palestra.engines.base import Sampling
    from palestra.evals.agents import ModelSettings

    trained = _trained_with(who)
    said = {**{name: trained[name] for name, *_ in _SAMPLING if name in trained}, **_sampling_flags(args)}
    return ModelSettings(
        sampling=Sampling(**said),
        system=trained.get("system", "") if args.system is None else args.system,
        style=args.style,
        max_context=args.max_context,
        api_model=args.api_model,
        api_key_env=args.api_key_env,
        tokenizer=args.tokenizer,
        device=args.device,
        dtype=args.dtype,
    )


def _trained_with(who: str) -> Mapping[str, Any]:
    """A trained model is asked as it was in training, unless flags say otherwise."""
    try:
        config = json.loads((Path(who) / "run.json").read_text(encoding="utf-8"))["config"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return config if isinstance(config, dict) else {}


def running_settings(args: argparse.Namespace) -> EvalSettings:
    """What changes no result."""
    from palestra.evals.run import EvalSettings
    from palestra.evals.summary import Prices

    return EvalSettings(
        concurrency=args.concurrency,
        retries=args.retries,
        call_timeout=args.call_timeout,
        prices=Prices(read=args.price_in, written=args.price_out),
        progress=not (args.quiet or args.json),
    )


def _command() -> list[str]:
    """As it was typed, by its plain name."""
    return ["palestra", *sys.argv[1:]]


# What is shown


def show(args: argparse.Namespace, done: Evaluation) -> None:
    """The table on standard output, where the rest is on standard error."""
    from palestra.evals.report import write_report
    from palestra.evals.text import cells, markdown, sections, table_text

    page = write_report(done.folder)
    table = done.summary["table"]
    if args.json:
        print(json.dumps(done.summary, indent=2))
    elif args.markdown:
        for title, rows in sections(table):
            head, body = cells(rows)
            print(markdown([title, *head[1:]], body), end="\n\n")
    elif not args.quiet:
        print(table_text(table))
        running = done.summary["running"]
        took = f"{running['wall_seconds']:.1f} s in all, {running['seconds_per_episode']:.2f} s an episode"
        print(f"\n{done.played} episodes played now; {took}. report: {page}")
    if done.stopped is not None:
        print(f"palestra: no more were started: {done.stopped}", file=sys.stderr)


def verdict(done: Evaluation, most: float) -> int:
    """The exit code: too many episodes without a result, and the numbers cannot be relied on."""
    if done.left == 0:
        return EXIT_OK
    causes: dict[str, str] = {}
    for one in done.outcomes.values():
        if one.boundary is not None:
            causes.setdefault(one.boundary, f"{one.boundary}: {one.kind}: {one.message}"[:300])
    for line in causes.values():
        print(f"palestra: {line}", file=sys.stderr)
    share = done.left / done.planned
    told = f"{done.left} of {done.planned} episodes have no result ({share:.1%})"
    print(f"palestra: {told}; the same command tries them again", file=sys.stderr)
    return EXIT_INFRASTRUCTURE if share > most else EXIT_OK


def _write_what_there_is(folder: Path, settings: EvalSettings) -> None:
    from palestra.evals.folder import holds_evaluation, read_evaluation
    from palestra.evals.report import write_report
    from palestra.evals.run import write_summary

    if holds_evaluation(folder):
        record = read_evaluation(folder)
        write_summary(record, record.outcomes(), settings.prices)
        write_report(folder)


def _list_suites() -> int:
    from palestra.evals.suite import builtin_suites, load_suite

    for name in builtin_suites():
        suite = load_suite(f"suite:{name}")
        print(f"suite:{name:<12} {len(suite.entries):>3} environments, {suite.episodes:>5} episodes  {suite.summary}")
    return EXIT_OK

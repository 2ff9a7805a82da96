"""`palestra eval ENV|SUITE ...`: evaluate an agent; an interrupted evaluation can be resumed."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.cli import EXIT_INFRASTRUCTURE, EXIT_INTERRUPTED, EXIT_OK
from palestra.cli.env_options import (
    expand_names,
    is_pattern,
    make_kwargs,
)
from palestra.cli.eval_options import SAMPLING, add_arguments
from palestra.cli.options import given_options, quiet_libraries
from palestra.cli.terminal import fitted, line_width
from palestra.concurrency import run_sync
from palestra.errors import BadValue
from palestra.optional import require
from palestra.progress import phase
from palestra.suggestions import did_you_mean

__all__ = ["add_arguments", "run"]

MAX_CUT_REPLIES = 0.2  # print a warning if more than this fraction of replies reach the maximum length

if TYPE_CHECKING:
    from palestra.evals.agents import ModelSettings
    from palestra.evals.run import EvalSettings, Evaluation
    from palestra.evals.suite import Suite
    from palestra.evals.summary import Prices


def run(args: argparse.Namespace) -> int:
    with phase("loading"):
        from palestra.evals.agents import EvaluatedAgent
        from palestra.evals.folder import default_folder
        from palestra.evals.run import run_evaluation

    if args.suites:
        return _list_suites()
    name = args.model or args.agent
    if name is None:
        raise BadValue("no agent given: use --model MODEL, or --agent with expert, random or module:name")
    name = _plugin_agent(name) if args.agent else name
    if not 0 <= args.max_failed <= 1:
        raise BadValue(f"--max-failed must be a fraction from 0 to 1, got {args.max_failed}")
    if args.concurrency < 1:
        raise BadValue(f"--concurrency must be at least 1, got {args.concurrency}")
    if args.retries < 0:
        raise BadValue(f"--retries must be at least 0, got {args.retries}")
    suite = selected_suite(args)
    agent = EvaluatedAgent(name, _model_settings(args, name))
    if args.model is not None and agent.kind in ("player", "python"):
        raise BadValue(f"{name} is not a model; pass it as --agent {name}")
    if agent.kind in ("hf", "default"):
        with phase("loading PyTorch"):
            require("torch", extra="hf")
            quiet_libraries()
    folder = Path(args.out) if args.out else default_folder(suite.name, name)
    settings = _execution_settings(args, _prices(args, agent.kind))
    command = ["palestra", *sys.argv[1:]]
    try:
        evaluation = run_sync(
            run_evaluation(suite, agent, folder, settings=settings, overwrite=args.overwrite, command=command)
        )
    except KeyboardInterrupt:
        print(f"\nstopped; finished episodes are in {folder}. Run the same command to resume.", file=sys.stderr)
        _write_partial_report(folder, settings)
        return EXIT_INTERRUPTED
    _print_evaluation(args, evaluation)
    if not args.quiet:
        _warn_about_cut_replies(evaluation)
    return exit_code(evaluation, args.max_failed)


def _plugin_agent(name: str) -> str:
    """Return `module:name` for the name of a plug-in agent, and the name of another agent unchanged."""
    from palestra.plugins import available, entry_point_value

    players = ("expert", "random")
    if name in players or ":" in name or "/" in name or Path(name).exists():
        return name
    plugin = entry_point_value("agents", name)
    if plugin is None:
        known = [*players, *available("agents")]
        raise BadValue(
            f"there is no agent {name!r}.{did_you_mean(name, known)} Agents: {', '.join(known)}, or module:name for a "
            "function or class of your own. For a language model, use --model."
        )
    return plugin


def selected_suite(args: argparse.Namespace) -> Suite:
    """Combine the environments and suites on the command line into one suite and apply the options to it."""
    from palestra.evals.data_ids import with_item_ids
    from palestra.evals.published import Published
    from palestra.evals.suite import Suite, load_suite, suite_entry, with_overrides

    names = [*args.targets, *args.env]
    if not names and not args.data_id:
        raise BadValue(
            "nothing to evaluate on: give an environment, suite:NAME or a TOML file. "
            "`palestra eval --suites` lists the suites."
        )
    suites: list[Suite] = []
    for name in names:
        if name.startswith("suite:") or (name.endswith(".toml") and "://" not in name):
            suites.append(load_suite(name))
        else:
            ids = expand_names([name]) if is_pattern(name) else [name]
            suites += [Suite(name=env_id, entries=(suite_entry(env_id, where="the command"),)) for env_id in ids]
    title = " + ".join(dict.fromkeys(suite.name for suite in suites)) if len(suites) <= 3 else f"{len(suites)} parts"
    published = suites[0].published if len(suites) == 1 else Published()
    suite = Suite(name=title, entries=tuple(entry for suite in suites for entry in suite.entries), published=published)
    if args.data_id:
        count = None if args.n == "all" else args.n
        suite = with_item_ids(suite, args.data_id, n=count)
        suite = replace(suite, name=suite.name or " + ".join(Path(path).stem for path in args.data_id))
    count = None if args.data_id else args.n
    suite = with_overrides(suite, kwargs=make_kwargs(args), n=count, k=args.k, seed=args.seed, turns=args.turns)
    flags = _sampling_options(args)
    entries = (
        replace(entry, sampling={key: value for key, value in entry.sampling.items() if key not in flags})
        for entry in suite.entries
    )
    return replace(suite, entries=tuple(entries))


def _sampling_options(args: argparse.Namespace) -> dict[str, Any]:
    options = {name: getattr(args, name) for name, *_ in SAMPLING if getattr(args, name) is not None}
    return {**options, "stop": tuple(args.stop)} if args.stop else options


def _model_settings(args: argparse.Namespace, model: str) -> ModelSettings:
    from palestra.engines.base import Sampling
    from palestra.evals.agents import ModelSettings
    from palestra.training.recipe import make_section

    trained = _training_settings(model)
    sampling = trained.get("sampling", {})
    given = {name: sampling[name] for name, *_ in SAMPLING if name in sampling}
    given["stop"] = tuple(sampling.get("stop", ()))
    if not given.get("max_tokens"):  # with 0, the limit depends on the warm start or the chat template
        given.pop("max_tokens", None)
        if trained and (tokens := _reply_length(model)):
            given["max_tokens"] = tokens
    temperature = trained.get("eval", {}).get("temperature", -1)
    if temperature >= 0:
        given["temperature"] = temperature
    given |= _sampling_options(args)
    # Older runs have the system prompt among the sampling settings.
    chat = {"system": sampling.get("system", ""), **trained.get("agent", {}), **given_options(args)}
    return ModelSettings(
        sampling=Sampling(**given),
        auto_max_tokens="max_tokens" not in given,
        agent=make_section("agent", chat),
        api_model=args.api_model,
        api_key_env=args.api_key_env,
        tokenizer=args.tokenizer,
        device=args.device,
        dtype=args.dtype,
        requests_per_minute=args.requests_per_minute,
    )


def _training_settings(model: str) -> dict[str, dict[str, Any]]:
    """Return the tables of a training run's config if `model` is its folder or one of its checkpoints, else nothing."""
    folder = Path(model)
    if folder.name in ("best", "last"):
        folder = folder.parent
    elif folder.parent.name == "checkpoints":
        folder = folder.parent.parent
    try:
        config = json.loads((folder / "run.json").read_text(encoding="utf-8"))["config"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    tables = config.items() if isinstance(config, dict) else ()
    return {name: table for name, table in tables if isinstance(table, dict)}


def _reply_length(model: str) -> int | None:
    """Return the maximum reply length with which a run trained a model from random weights, if its files state one."""
    from palestra.engines.model_folders import model_folder

    try:
        config = json.loads((Path(model_folder(model)) / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    tokens = config.get("max_new_tokens") if isinstance(config, dict) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else None


def _prices(args: argparse.Namespace, kind: str) -> Prices:
    """Return the prices on the command line or, for a hosted model, those in litellm's table."""
    from palestra.evals.summary import Prices

    if kind == "litellm" and args.price_in is None and args.price_out is None:
        from palestra.engines.litellm import LiteLLMEngine

        read, written = LiteLLMEngine(args.model).prices or (None, None)
        return Prices(read=read, written=written)
    return Prices(read=args.price_in, written=args.price_out)


def _execution_settings(args: argparse.Namespace, prices: Prices) -> EvalSettings:
    from palestra.evals.run import EvalSettings

    return EvalSettings(
        concurrency=args.concurrency,
        retries=args.retries,
        call_timeout=args.call_timeout,
        env_backend=args.env_backend,
        env_workers=args.env_workers,
        step_timeout=args.step_timeout,
        reset_timeout=args.reset_timeout,
        prices=prices,
        progress=not (args.quiet or args.json),
    )


def _print_evaluation(args: argparse.Namespace, evaluation: Evaluation) -> None:
    """Write the report and print the results in the requested format."""
    from palestra.evals import published
    from palestra.evals.report import write_report
    from palestra.evals.text import cells, markdown, sections, table_text

    page = write_report(evaluation.folder)
    table = evaluation.summary["table"]
    if args.json:
        print(json.dumps(evaluation.summary, indent=2))
    elif args.markdown:
        for title, rows in sections(table):
            head, body = cells(rows)
            print(markdown([title, *head[1:]], body), end="\n\n")
        if table["published"]:
            print(markdown(*published.cells(table["published"])), end="\n\n")
            print("\n".join(f"- {line}" for line in published.notes(table["published"])))
    elif not args.quiet:
        print(fitted(table_text(table, line_width())))
        running = evaluation.summary["running"]
        seconds = f"{running['wall_seconds']:.1f} s in total, {running['seconds_per_episode']:.2f} s per episode"
        plural = "" if evaluation.played == 1 else "s"
        print(fitted(f"\nplayed {evaluation.played} episode{plural}: {seconds}. report: {page}"))
    if evaluation.stopped is not None:
        print(f"palestra: stopped early: {evaluation.stopped}", file=sys.stderr)


def _warn_about_cut_replies(evaluation: Evaluation) -> None:
    outcomes = evaluation.outcomes.values()
    share = sum(one.cut for one in outcomes) / max(1, sum(one.turns for one in outcomes))
    if share > MAX_CUT_REPLIES:
        advice = "Raise --max-tokens, or make the model reply briefly with --thinking off or --system"
        print(
            f"palestra: warning: {share:.0%} of the replies were cut at the maximum length. {advice}", file=sys.stderr
        )


def exit_code(evaluation: Evaluation, max_failed: float) -> int:
    """Print why episodes have no result; return exit code 3 if their fraction exceeds `max_failed`, otherwise 0."""
    if evaluation.left == 0:
        return EXIT_OK
    causes: dict[str, str] = {}
    for outcome in evaluation.outcomes.values():
        if outcome.boundary is not None:
            causes.setdefault(outcome.boundary, f"{outcome.boundary}: {outcome.kind}: {outcome.message}"[:300])
    for line in causes.values():
        print(f"palestra: {line}", file=sys.stderr)
    share = evaluation.left / evaluation.planned
    summary = f"{evaluation.left} of {evaluation.planned} episodes have no result ({share:.1%})"
    print(f"palestra: {summary}. Run the same command to play them again.", file=sys.stderr)
    return EXIT_INFRASTRUCTURE if share > max_failed else EXIT_OK


def _write_partial_report(folder: Path, settings: EvalSettings) -> None:
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
        data_sets = sum(entry.every_task for entry in suite.entries)
        more = f" and every row of {data_sets} datasets" if data_sets else ""
        size = f"{len(suite.entries):>3} environments, {suite.episodes:>5} episodes{more}"
        print(fitted(f"suite:{name:<12} {size}  {suite.summary}", indent=19))
    return EXIT_OK

"""`palestra train [RECIPE]`: train an agent.

Every setting in the training config has a command-line option. Running the same command again resumes a run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.algorithms.registry import algorithm_names, get_algorithm
from palestra.cli import EXIT_INTERRUPTED, terminal
from palestra.cli.env_options import add_set, parse_kwargs, single_kwargs
from palestra.cli.options import add_flag, default_text, given_options, option_dest, quiet_libraries
from palestra.errors import BadValue, MissingExtra, PalestraError, StoreFailed
from palestra.folders import check_unused
from palestra.optional import require
from palestra.options import flat_name
from palestra.plugins import import_modules
from palestra.progress import displayed, phase
from palestra.registry import get_spec
from palestra.training.config import TrainConfig
from palestra.training.recipe import DEFAULT_ALGORITHM, from_mapping, merge, read_recipe
from palestra.training.reporting import console
from palestra.training.reporting.metrics import BARS, FILE, read
from palestra.training.reporting.run_folder import holds_run, last_checkpoint, read_run
from palestra.training.resume import with_added
from palestra.training.sections import SECTIONS

if TYPE_CHECKING:
    from palestra.training.run import TrainingRun

TITLES = {
    "env": "environments [env]",
    "model": "model [model]",
    "agent": "agent [agent]",
    "sampling": "sampling [sampling]",
    "algorithm": "algorithm [algorithm]",
    "optimizer": "optimizer [optimizer]",
    "warm_start": "warm start [warm_start]",
    "eval": "evaluation [eval]",
    "run": "run [run]",
    "ray": "Ray cluster [ray]",
}
COMMON_OPTIONS = (  # described by --help; --help-all describes all options
    *("--env", "--set", "--tools", "--horizon", "--model", "--lora-rank", "--episodes", "--group-size", "--max-tokens"),
    *("--engine", "--algorithm", "--gamma", "--lr", "--eval-every", "--target", "--out", "--seed", "--steps"),
    *("--device", "--resume", "--overwrite", "--dry-run"),
)
_EPILOG = """\
examples:
  palestra train --env game:GuessTheNumber-v0-easy --seed 1 --out runs/a   train an untrained model on the CPU
  palestra train --env math:Math12K --tools python --model Qwen/Qwen3-1.7B --algorithm grpo
  palestra train --env game:Sudoku-v0-easy --model Qwen/Qwen3-1.7B --gamma 0.9 --horizon 5,10,15@100
  palestra train recipe.toml --lr 3e-4                                     override a setting in the recipe
  palestra train recipe.toml --dry-run                                     print the settings, memory and time
  palestra train --out runs/a --resume --steps 200                         continue with the settings of runs/a

Run the same command again to continue an interrupted run. docs/training.md describes the files in a run's folder.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "palestra train [RECIPE] [--env NAME[=WEIGHT] ...] [--SETTING VALUE ...] [--resume | --overwrite]"
    parser.epilog = _EPILOG
    parser.allow_abbrev = False  # reject misspelled flags instead of guessing
    parser.add_argument(
        "recipe",
        nargs="?",
        metavar="RECIPE",
        help="TOML file that sets any of the options below, with one table per section.",
    )
    for section, title in TITLES.items():
        group = parser.add_argument_group(title)
        if section == "algorithm":
            _add_algorithm_flags(group)
        else:
            for item in fields(SECTIONS[section]):
                add_flag(group, SECTIONS[section], item, other_defaults=_algorithm_defaults(item))
        if section == "env":
            add_set(group)
    start = parser.add_argument_group("existing runs").add_mutually_exclusive_group()
    start.add_argument(
        "--resume",
        action="store_true",
        help="Continue the run in --out, and fail if there is none (default: continue an existing run, "
        "otherwise start one).",
    )
    start.add_argument("--overwrite", action="store_true", help="Delete an existing run in --out and start over.")
    output = parser.add_argument_group("output").add_mutually_exclusive_group()
    output.add_argument("--plain", action="store_true", help="Print one line per step, even in a terminal.")
    output.add_argument(
        "--json", action="store_true", help="Print one JSON object per step, then one that summarizes the run."
    )
    output.add_argument("--quiet", action="store_true", help="Print only error messages.")
    output.add_argument(
        "--dry-run",
        action="store_true",
        help="Print the settings and an estimate of memory and time, without training.",
    )
    output.add_argument(
        "--report", action="store_true", help="Rebuild the report for the run in --out without training."
    )


def run(args: argparse.Namespace) -> int:
    config = _config(args)
    folder = config.folder
    if args.report:
        _report(folder, log=print)
        return 0
    for name in {**config.env.weights, **dict.fromkeys(config.eval.env)}:
        if "://" not in name:
            get_spec(name)  # raises UnknownEnv before the model is loaded
    if args.dry_run:
        _print_plan(config)
        return 0
    if os.environ.get("RANK", "0") != "0":  # under torchrun only rank 0 locks the folder and prints output
        _train(config, view=console.Silent(), overwrite=args.overwrite, report=False)
        return 0
    _check_folder(folder, resume=args.resume)
    view = _view(args, config)
    before = [] if args.overwrite else read(folder / FILE)
    try:
        with _phases_shown(view):
            done = _train(config, view=view, overwrite=args.overwrite)
    except KeyboardInterrupt:
        print(f"\n{_interrupted(folder)}", file=sys.stderr)
        if holds_run(folder):
            _report(folder, picture=False)  # drawing takes seconds
        return EXIT_INTERRUPTED
    view.close()
    _report(folder, log=view.note)
    if args.json:
        print(json.dumps(_summary(done, folder)))
    elif not args.quiet:
        print(_result(done, folder))
        if before and len(before) == len(done.rows):
            print("The run was already finished. Raise --steps to continue it, or start over with --overwrite.")
    return 0


# Flags


def _algorithm_defaults(item: Field[Any]) -> list[str]:
    """Return the defaults of a setting for the algorithms that override its general default, as help texts."""
    general = item.metadata.get("auto") or item.default
    algorithms: dict[str, list[str]] = {}
    for name in algorithm_names():
        default = get_algorithm(name).defaults.get(flat_name(item), general)
        if default != general:
            algorithms.setdefault(default_text(default), []).append(name)
    return [f"for {', '.join(names)}: {text}" for text, names in algorithms.items()]


def _add_algorithm_flags(group: argparse._ArgumentGroup) -> None:
    """Add a flag for each option of each algorithm; options with the same name share one flag."""
    group.add_argument(
        "--algorithm",
        "--algo",
        dest=option_dest("algorithm"),
        default=argparse.SUPPRESS,
        metavar="NAME",
        help=f"Training algorithm: {', '.join(algorithm_names())} (default: {DEFAULT_ALGORITHM}).",
    )
    owners: dict[str, list[str]] = {}
    defaults: dict[str, dict[str, list[str]]] = {}  # flag -> default -> algorithms
    options: dict[str, tuple[type, Field[Any]]] = {}
    for name in algorithm_names():
        kind = get_algorithm(name).config_class
        for item in fields(kind):
            options.setdefault(flat_name(item), (kind, item))
            owners.setdefault(flat_name(item), []).append(name)
            defaults.setdefault(flat_name(item), {}).setdefault(str(item.default), []).append(name)
    everywhere = set(owners["gamma"])  # all policy-gradient algorithms have a `gamma` option
    for flag, (kind, item) in options.items():
        only = "" if everywhere <= set(owners[flag]) else f"used only by {', '.join(owners[flag])}"
        others = [f"for {', '.join(names)}: {default}" for default, names in list(defaults[flag].items())[1:]]
        add_flag(group, kind, item, note=only, other_defaults=others)
    group.add_argument(
        "--option",
        dest="options",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Set an option for an algorithm loaded with --import, whose options have no flags; repeatable.",
    )


def _config(args: argparse.Namespace) -> TrainConfig:
    """Build the config; flags override the recipe or the resumed run's settings, which override the defaults."""
    given = given_options(args)
    import_modules(given.get("import", ()))  # the modules may register algorithms and environments
    for text in args.options:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadValue(f"--option takes NAME=VALUE, got {text!r}")
        given[name] = _parsed(value)
    base: Mapping[str, Any] = {}
    if args.recipe is not None:
        base = read_recipe(args.recipe)
        import_modules(_imports(base))
    elif (args.resume or args.report) and "env" not in given:
        if "out" not in given:
            raise BadValue("pass --out FOLDER to select the run, or pass the --env or recipe that it was started with")
        base = read_run(given["out"]).config
        import_modules(_imports(base))
        base = with_added(base)
    if args.set:
        recipe = base.get("env", {}).get("kwargs", {})
        kwargs = parse_kwargs(given["env_kwargs"]) if "env_kwargs" in given else recipe
        given["env_kwargs"] = {**kwargs, **single_kwargs(args.set)}
    return from_mapping(merge(base, given))


def _imports(base: Mapping[str, Any]) -> Sequence[str]:
    imports = base.get("env", {}).get("imports", ())
    return [imports] if isinstance(imports, str) else imports


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# The run's folder


def _check_folder(folder: Path, *, resume: bool) -> None:
    """Check that the folder is writable and contains a run if `resume` is set; raise BadValue or StoreFailed if not."""
    if resume and not holds_run(folder):
        raise BadValue(f"there is no run to resume in {folder}; leave out --resume to start one")
    if resume and last_checkpoint(folder) is None:
        raise BadValue(f"the run in {folder} has no checkpoint yet; leave out --resume to start it again")
    check_unused(folder, ours=holds_run(folder), what="training run")
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".try-"):
            pass
        if is_new:
            folder.rmdir()  # the trainer creates it again; a failed start leaves no folder
    except OSError as err:
        raise StoreFailed(f"cannot write to the folder {folder}: {err.strerror}. Choose another --out") from err


# Training


def _train(config: TrainConfig, *, view: console.View, overwrite: bool, report: bool = True) -> TrainingRun:
    envs = ", ".join(config.env.weights) or "stored episodes"
    view.note(f"training {config.model.name} on {envs} with {config.algorithm.name}; loading PyTorch")
    with phase("loading PyTorch"):
        for module in ("torch", "transformers"):
            require(module, extra="train")
        quiet_libraries()
        from palestra.training.api import train
        from palestra.training.trainer_selection import trainer_class

        trainer_class(config)  # imports the trainer
    if config.model.trained:
        view.note(f"loading {config.model.name}")  # loading may include a download of several minutes

    folder = config.folder
    reported = 0

    def on_metrics(rows: Sequence[Mapping[str, Any]]) -> None:
        nonlocal reported
        view.rows(rows)
        evaluations = sum("eval_success" in row for row in rows)
        if report and evaluations > reported:
            reported = evaluations
            _report(folder, picture=False)  # curve.png is rendered only at the end

    try:
        return train(config, overwrite=overwrite, log=view.note, on_metrics=on_metrics, progress=False)
    except OSError as err:
        if isinstance(err, (PalestraError, BrokenPipeError)):
            raise
        where = f"{err.filename}: " if err.filename else ""
        raise StoreFailed(
            f"{where}{err.strerror or err}. Run the same command again to continue from the last checkpoint"
        ) from err


def _print_plan(config: TrainConfig) -> None:
    """Print the resolved settings as a recipe, and an estimate of the run's memory and time."""
    with phase("estimating memory and time"):
        for module in ("torch", "transformers"):
            require(module, extra="train")
        quiet_libraries()
        from palestra.training.estimate import estimate

        plan = estimate(config)
    for section, values in config.with_model_size(plan.parameters).to_dict().items():
        if isinstance(values, Mapping):
            print(f"[{section}]")
            for name, value in values.items():
                print(f"# {name} is chosen by the run" if value is None else f"{name} = {_toml(value)}")
            print()
    print("\n".join(plan.lines()))
    print(f"folder: {config.folder}")


def _toml(value: Any) -> str:
    """Return a setting's value in TOML, which differs from JSON only in its tables."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(key)} = {_toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _report(folder: Path, *, picture: bool = True, log: Any = lambda _: None) -> None:
    with phase("writing the report"):
        from palestra.training.reporting.report import write_curve, write_page

        page = write_page(folder)
    log(f"report: {page}")
    if picture:
        try:
            with phase("drawing the curve"):
                curve = write_curve(folder)
            log(f"curve: {curve}")
        except MissingExtra as err:
            log(f"no curve.png: {err}")


def _view(args: argparse.Namespace, config: TrainConfig) -> console.View:
    if args.json:
        return console.JsonLines(sys.stdout, sys.stderr)
    if args.quiet:
        return console.Silent()
    if args.plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb" or not _can_draw_bars():
        return console.Lines(sys.stdout, config.run.steps)
    return console.Live(sys.stdout, config.to_dict())


def _phases_shown(view: console.View) -> AbstractContextManager[None]:
    """Show the phases of a step in the live block, or else as lines if they take minutes, as in a log file."""
    if isinstance(view, console.Live):
        return displayed(view)
    if isinstance(view, console.Lines):
        return displayed(terminal.Lines(sys.stdout, begin="first" if sys.stdout.isatty() else "none"))
    if isinstance(view, console.JsonLines):
        return displayed(terminal.Lines(sys.stderr, begin="none"))
    return nullcontext()


def _can_draw_bars() -> bool:
    try:
        BARS.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return False
    return True


def _interrupted(folder: Path) -> str:
    step = last_checkpoint(folder)
    if step is None:
        return "stopped before the first checkpoint; run the same command to start again"
    return f"stopped; run the same command to continue from the checkpoint at step {step}"


def _summary(done: TrainingRun, folder: Path) -> dict[str, Any]:
    return {
        "run": str(folder),
        "steps": done.rows[-1]["step"] + 1 if done.rows else 0,
        "first_success": done.first_success,
        "last_success": done.last_success,
        "final_success": done.final_success,
    }


def _result(done: TrainingRun, folder: Path) -> str:
    if done.first_success is None or done.last_success is None:
        lines = [f"{folder}: done"]
    else:
        final = console.describe_final(done.rows)
        lines = [f"{folder}: success {done.first_success:.1%} -> {done.last_success:.1%}", *([final] if final else [])]
    if not done.rows:
        return lines[0]
    lines = [terminal.fitted(line) for line in [*lines, _why_ended(done)]]
    lines += ["", "next:", *(f"  {command}" for command in _next_commands(done, folder))]
    return "\n".join(lines)


def _why_ended(done: TrainingRun) -> str:
    steps = done.rows[-1]["step"] + 1
    if _target_reached(done):
        target = done.config.eval.target
        return f"The run ended after {steps} steps, because the success rate reached the target of {target:.0%}."
    return f"The run ended after the last step ({steps})."


def _target_reached(done: TrainingRun) -> bool:
    target = done.config.eval.target
    return bool(target) and done.last_success is not None and done.last_success >= target


def _next_commands(done: TrainingRun, folder: Path) -> list[str]:
    env = next(iter(done.config.eval_envs), "ENV")
    more = f"palestra train --out {folder} --resume --steps {2 * done.config.run.steps}"
    return [
        f"palestra view {folder}",
        f"palestra eval {env} --model {folder}",
        f"palestra play {env}" if _target_reached(done) else more,
    ]

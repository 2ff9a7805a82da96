"""`palestra train [RECIPE]`: train an agent, watch it learn, go on after a stop. Every setting is a flag."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.cli import EXIT_INTERRUPTED
from palestra.cli.options import quiet_libraries
from palestra.errors import BadValue, MissingExtra, PalestraError, StoreFailed
from palestra.optional import require
from palestra.registry import get_spec
from palestra.training.config import TrainConfig, auto, from_mapping, kind_of, read_recipe
from palestra.training.reporting import console
from palestra.training.reporting.metrics import BARS, FILE, read
from palestra.training.reporting.run_folder import holds_run, last_checkpoint, read_run

if TYPE_CHECKING:
    from palestra.training.sync_trainer import Run

TITLES = {
    "task": "what is learned, by whom",
    "rollout": "sampling",
    "learning": "learning",
    "start": "before RL",
    "data": "cloning and preferences",
    "run": "keeping and showing",
}
_SEVERAL = {"env": "ID[=WEIGHT]", "eval_env": "ID", "data": "PATH"}
_EPILOG = """\
examples:
  palestra train --env game:GuessTheNumber-v0-easy --seed 1 --out runs/a   an untrained model, on the CPU, in minutes
  palestra train --env game:Sudoku-v0-easy --model Qwen/Qwen3-1.7B --algo rebn --gamma 0.9 --horizon 5,10,15@100
  palestra train recipe.toml --lr 3e-4 --resume                            flags override the recipe
  palestra train --out runs/a --resume --steps 200                         the settings are read from runs/a

The same command goes on where a run was stopped. docs/training.md explains what the folder of a run holds.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "palestra train [RECIPE] [--env ID[=WEIGHT] ...] [--SETTING VALUE ...] [--resume | --no-resume]"
    parser.epilog = _EPILOG
    parser.allow_abbrev = False  # a misspelt flag is refused, not guessed
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="a TOML file of the settings below")
    groups: dict[str, argparse._ArgumentGroup] = {}
    for item in fields(TrainConfig):
        name = item.metadata["group"]
        if name not in groups:
            groups[name] = parser.add_argument_group(TITLES.get(name, name))
        _add_flag(groups[name], item)
    going = parser.add_argument_group("going on")
    going.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        help="go on with the run in --out, which must be there; --no-resume: delete it and start over "
        "(by default go on where there is one)",
    )
    shown = parser.add_argument_group("output").add_mutually_exclusive_group()
    shown.add_argument("--plain", action="store_true", help="a line a step, as in a pipe, also in a terminal")
    shown.add_argument("--json", action="store_true", help="a JSON object a step, then one about the run, a line each")
    shown.add_argument("--quiet", action="store_true", help="nothing but errors")
    shown.add_argument("--report", action="store_true", help="train nothing; rebuild the report of the run in --out")


def run(args: argparse.Namespace) -> int:
    config = _config(args)
    folder = config.folder
    if args.report:
        _report(folder, say=print)
        return 0
    for env_id in {**config.envs, **dict.fromkeys(config.eval_env)}:
        get_spec(env_id)  # a wrong id is told before anything heavy is loaded
    if os.environ.get("RANK", "0") != "0":  # under torchrun the first process claims, shows and reports
        _train(config, view=console.Silent(), resume=args.resume is not False, report=False)
        return 0
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    _check_folder(folder, args.resume)
    view = _view(args, config)
    with _claimed(folder):
        if args.resume is False and alone:
            _empty(folder)
        try:
            before = read(folder / FILE)
            done = _train(config, view=view, resume=alone or args.resume is not False)
        except KeyboardInterrupt:
            print(f"\n{_stopped(folder)}", file=sys.stderr)
            if holds_run(folder):
                _report(folder)
            return EXIT_INTERRUPTED
        view.end()
        _report(folder, say=view.note)
    if args.json:
        print(json.dumps(_summary(done, folder)))
    elif not args.quiet:
        print(_ending(done, folder))
        if before and len(before) == len(done.rows):
            print("It was finished before. A higher --steps goes on, --no-resume starts over.")
    return 0


# From flags to a config


def _add_flag(group: argparse._ArgumentGroup, item: Field[Any]) -> None:
    """A flag for a setting; what is not given stays out of the namespace, so that the recipe may say it."""
    kind = kind_of(item)
    flag = "--" + item.name.replace("_", "-")
    options: dict[str, Any] = {"dest": _dest(item.name), "default": argparse.SUPPRESS}
    text = item.metadata["help"].replace("%", "%%")
    if kind is tuple:
        options |= {"action": "append", "metavar": _SEVERAL[item.name]}
        text += " (repeatable)"
    elif kind is bool:
        options |= {"action": argparse.BooleanOptionalAction}
        text += f" ({'yes' if item.default else 'no'})"
    else:
        options |= {"type": kind, "metavar": {int: "N", float: "X"}.get(kind, item.name.rpartition("_")[2].upper())}
        if item.metadata.get("auto"):
            new, trained = (auto(item.name, "rebn", trained=trained) for trained in (False, True))
            text += f" ({new}; {trained} for a trained model)"
        elif item.default is not MISSING and item.default != "":
            text += f" ({item.default})"
    group.add_argument(flag, help=text, **options)


def _dest(name: str) -> str:
    return f"set_{name}"  # apart from what the command itself takes, whatever a setting is called


def _config(args: argparse.Namespace) -> TrainConfig:
    """Defaults, then the recipe (or the settings of the run to resume), then the flags."""
    given = {
        item.name: getattr(args, _dest(item.name)) for item in fields(TrainConfig) if hasattr(args, _dest(item.name))
    }
    base: Mapping[str, Any] = {}
    if args.recipe is not None:
        base = read_recipe(args.recipe)
    elif (args.resume or args.report) and "env" not in given:
        if "out" not in given:
            raise BadValue("say which run: --out FOLDER, or the --env or recipe it was started with")
        base = read_run(given["out"]).config
    return from_mapping({**base, **given})


# The folder


def _check_folder(folder: Path, resume: bool | None) -> None:
    """What can be said before anything is loaded: is there a run where one is needed, can the folder be written."""
    if resume and not holds_run(folder):
        raise BadValue(f"there is no run to resume in {folder}; without --resume one is started")
    if resume and last_checkpoint(folder) is None:
        raise BadValue(f"the run in {folder} has no checkpoint yet; without --resume it is started again")
    if resume is False and folder.is_dir() and any(folder.iterdir()) and not holds_run(folder):
        raise BadValue(
            f"{folder} holds something else than a run, which --no-resume would delete; choose another --out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".try-"):
            pass
    except OSError as err:
        raise StoreFailed(f"the folder {folder} cannot be written: {err.strerror}. Choose another --out") from err


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Only one process trains in a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        raise BadValue(f"another process is training in {folder}; wait for it, or choose another --out") from err
    else:
        yield
    finally:
        os.close(handle)


def _empty(folder: Path) -> None:
    """The folder itself stays: it carries the claim."""
    try:
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as err:
        raise StoreFailed(f"the run in {folder} could not be deleted: {err}") from err


# Running


def _train(config: TrainConfig, *, view: console.View, resume: bool, report: bool = True) -> Run:
    for module in ("torch", "transformers"):
        require(module, extra="train")
    quiet_libraries()
    from palestra.training.sync_trainer import train

    if not config.model.startswith("default:"):
        view.note(f"loading {config.model}")  # a download takes minutes

    folder = config.folder
    reported = 0

    def watch(rows: Sequence[Mapping[str, Any]]) -> None:
        nonlocal reported
        view.rows(rows)
        judged = sum("eval_success" in row for row in rows)
        if report and judged > reported:
            reported = judged
            _report(folder, picture=False)  # the page may be open; the picture is drawn at the end

    try:
        return train(config, resume=resume, say=view.note, watch=watch)
    except OSError as err:
        if isinstance(err, (PalestraError, BrokenPipeError)):
            raise
        where = f"{err.filename}: " if err.filename else ""
        raise StoreFailed(f"{where}{err.strerror or err}. The same command goes on from the last checkpoint") from err


def _report(folder: Path, *, picture: bool = True, say: Any = lambda _: None) -> None:
    from palestra.training.reporting.report import write_curve, write_page

    say(f"report: {write_page(folder)}")
    if picture:
        try:
            say(f"curve: {write_curve(folder)}")
        except MissingExtra as err:
            say(f"no curve.png: {err}")


def _view(args: argparse.Namespace, config: TrainConfig) -> console.View:
    if args.json:
        return console.JsonLines(sys.stdout, sys.stderr)
    if args.quiet:
        return console.Silent()
    if args.plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb" or not _draws_bars():
        return console.Lines(sys.stdout, config.steps)
    return console.Live(sys.stdout, config.to_dict())


def _draws_bars() -> bool:
    try:
        BARS.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return False
    return True


def _stopped(folder: Path) -> str:
    step = last_checkpoint(folder)
    if step is None:
        return "stopped before the first checkpoint; the same command starts again"
    return f"stopped; what was learned up to step {step} is kept, and the same command goes on from there"


def _summary(done: Run, folder: Path) -> dict[str, Any]:
    return {
        "run": str(folder),
        "steps": done.rows[-1]["step"] + 1 if done.rows else 0,
        "first_success": done.first_success,
        "last_success": done.last_success,
    }


def _ending(done: Run, folder: Path) -> str:
    if done.first_success is None or done.last_success is None:
        return f"{folder}: done"
    return f"{folder}: held-out success {done.first_success:.1%} -> {done.last_success:.1%}"

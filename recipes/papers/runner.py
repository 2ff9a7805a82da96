"""Run training experiments with `palestra train`, several at a time, and append every result to a data file.

The scripts in this folder use this module. A finished run is not repeated, and one that failed or was stopped is
continued if its folder still exists, so the same command resumes an experiment. Failed and stopped runs are appended as
well.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from files import DOCS, HERE, append, claimed, curve, ended, finished, remove_training_state, results, write_section
from mps import service
from plan import Question, Row, Run, is_untrained, model_settings
from processes import end_all, palestra, stopping
from settings import add_gpu_flags, flags_of, given, hardware, key_of, untrained_defaults

from palestra.training.recipe import from_mapping
from palestra.training.reporting.metrics import read

MINIMUM_SECONDS = 20.0  # a run is not started if less time is left

_starts: defaultdict[str, Lock] = defaultdict(Lock)
_tried: set[str] = set()  # models whose runs were started by this command


# Processes


def train(settings: Mapping[str, Any], folder: Path, seconds: float) -> int | None:
    """Run `palestra train`; return its exit code, or None if it was stopped after `seconds`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = ["train", *flags_of({**settings, "out": str(folder)}), "--plain"]
    return palestra(command, folder.with_name(f"{folder.name}.log"), seconds)


def evaluate(folder: Path, name: str, flags: Mapping[str, Any], gpu: bool, seconds: float) -> Row:
    """Run `palestra eval` with the model of a run, and return its rates."""
    out = folder.with_name(f"{folder.name}-eval-{name}".replace(" ", "-").replace(":", "-"))
    env, *rest = flags["env"], *flags_of({name: flag for name, flag in flags.items() if name not in ("env", "n", "k")})
    counts = ["-n", str(flags["n"]), "-k", str(flags.get("k", 1)), "--seed", "900000"]
    device = ["--device", "cuda" if gpu else "cpu"]
    command = ["eval", env, "--model", str(folder), "--out", str(out), "--quiet", *counts, *device, *rest]
    code = palestra(command, folder.with_name(f"{folder.name}.log"), seconds)
    if code != 0:
        return {"ended": ended(code)}
    (row,) = json.loads((out / "summary.json").read_text())["table"]["envs"]
    rates = {name: row[name] for name in ("success", "turns") if name in row}
    return {**rates, **{name: rate for name, rate in row.items() if name.startswith("pass")}}


# Execution


def execute(plan: Callable[[Sequence[Row]], Sequence[Run]], args: argparse.Namespace) -> None:
    """Execute the runs of a plan that have not finished, then call `plan` again with the new results."""
    deadline = time.monotonic() + 60 * args.minutes
    attempted: set[str] = set()
    while True:
        rows = [row for row in results(args.results) if row["set"] == args.set]
        runs = [run for run in plan(rows) if _selected(run, args) and not finished(rows, key_of(run, args))]
        runs = [run for run in runs if json.dumps(key_of(run, args)) not in attempted]
        if not runs:
            return
        attempted |= {json.dumps(key_of(run, args)) for run in runs}
        # With several jobs, no job should wait for a start that another one trains; a single job trains each start when
        # a run needs it, so that the first results come early.
        starts = {str(start_model(run, args)): run for run in runs if run.start is not None and args.jobs > 1}
        jobs = [partial(train_start, run, args, deadline) for run in starts.values()]
        run_jobs([*jobs, *(partial(run_one, run, args, deadline) for run in runs)], args.jobs)


def run_jobs(jobs: Sequence[Callable[[], None]], count: int) -> None:
    """Call functions, up to `count` at a time; after Ctrl-C, SIGTERM or an error, end the processes that they use."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if is_main else None
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except KeyboardInterrupt:
            print("interrupted; the same command continues", file=sys.stderr)
            sys.exit(130)
        finally:
            if not all(future.done() for future in futures):
                pool.shutdown(wait=False, cancel_futures=True)
                end_all()
            if is_main:
                signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _selected(run: Run, args: argparse.Namespace) -> bool:
    return (not args.tasks or run.task in args.tasks) and (not args.variants or run.variant in args.variants)


def folder_of(run: Run, args: argparse.Namespace) -> Path:
    """Return the folder of a run."""
    name = "-".join([run.question, run.task, run.variant, str(run.seed), key_of(run, args)["settings"]])
    return Path(args.out / "".join(c if c.isalnum() or c in "-._" else "_" for c in name))


def start_model(run: Run, args: argparse.Namespace) -> Path:
    """Return the folder of the model that a run starts from."""
    if run.start is None:
        raise ValueError(f"{run.variant} does not start from another run's model")
    return folder_of(run.start, args) / ("last" if run.start_step is None else f"checkpoints/step-{run.start_step}")


def train_start(run: Run, args: argparse.Namespace, deadline: float) -> None:
    """Execute the run from whose model `run` starts, once, unless that model exists."""
    model = str(start_model(run, args))
    with _starts[model]:
        if run.start is not None and model not in _tried and not Path(model, "config.json").exists():
            _tried.add(model)
            run_one(run.start, args, deadline)


def run_one(run: Run, args: argparse.Namespace, deadline: float) -> None:
    """Execute a run and append its result."""
    key = key_of(run, args)
    folder = folder_of(run, args)
    settings = {**run.settings, "store": args.store, **given(args), **hardware(args), "seed": run.seed}
    if run.start is not None:
        train_start(run, args, deadline)
        model = start_model(run, args)
        if not (model / "config.json").exists():
            return  # the data file contains the result of the other run
        if is_untrained(run.model):
            settings = untrained_defaults(settings, str(model))
        else:
            settings = {**settings, "model": str(model), "warm_start": 0}
    with claimed(folder) as free:
        # Another process may have finished it in the meantime.
        complete = (folder / "last" / "config.json").exists() and finished(results(args.results), key)
        if free and not complete and deadline - time.monotonic() >= MINIMUM_SECONDS and not stopping():
            record(run, args, key, settings, folder, deadline)


def record(
    run: Run, args: argparse.Namespace, key: Row, settings: Mapping[str, Any], folder: Path, deadline: float
) -> None:
    """Train and evaluate, and append the result."""
    began = time.monotonic()
    outcome = ended(train(settings, folder, deadline - began))
    evaluations: dict[str, Row] = {}
    for name, flags in run.evaluations.items():
        if outcome == "finished":
            evaluations[name] = evaluate(folder, name, flags, args.gpu, deadline - time.monotonic())
            outcome = evaluations[name].get("ended", outcome)
    rows = read(folder / "metrics.jsonl")
    row = {
        **key,
        "set": args.set,
        "env": settings["env"],
        "steps": max((row["step"] + 1 for row in rows), default=0),
        "curve": curve(rows, from_mapping(settings).sampling.episodes),
        "final": next((round(row["final_success"], 4) for row in rows if "final_success" in row), None),
        "evaluations": evaluations,
        "rollbacks": sum(bool(row.get("rollback")) for row in rows),
        "seconds": round(time.monotonic() - began),
        "ended": outcome,
        "hardware": args.hardware,
        "jobs": args.jobs,
    }
    append(args.results, row)
    if outcome == "finished":
        remove_training_state(folder)
    print(
        json.dumps({name: row[name] for name in ("task", "variant", "seed", "final", "seconds", "ended")}), flush=True
    )


def main(description: str, name: str, questions: Mapping[str, Question]) -> None:
    """Parse the command line of a script, and execute the runs of a question or write the documentation."""
    args = parser_of(description, name, list(questions)).parse_args()
    if args.table:
        for key, question in questions.items():
            write_section(DOCS / "papers.md", f"{name} {key}", question.report(results(args.results)))
        return
    with service(args.gpu and args.mps and not args.list):
        for key in questions if args.question == "all" else [args.question]:
            question = questions[key]
            model = model_settings(args.model)
            plan = partial(question.plan, args.seeds or question.seeds, model)
            if args.list:
                _list(key, plan, args)
            else:
                execute(plan, args)


def _list(key: str, plan: Callable[[Sequence[Row]], Sequence[Run]], args: argparse.Namespace) -> None:
    rows = [row for row in results(args.results) if row["set"] == args.set]
    for run in filter(partial(_selected, args=args), plan(rows)):
        state = "finished" if finished(rows, key_of(run, args)) else "not finished"
        print(f"{key}: {run.task}, {run.variant}, {run.model}, seed {run.seed}: {state}")


def parser_of(description: str, name: str, questions: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with the flags that the scripts for the papers' questions share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "question", nargs="?", choices=[*questions, "all"], default="all", help="Question to answer (default: all)."
    )
    parser.add_argument("--seeds", nargs="+", type=int, help="Seeds (default: those of the question, at least 8).")
    parser.add_argument("--tasks", nargs="+", default=[], help="Run only these tasks (default: all).")
    parser.add_argument("--variants", nargs="+", default=[], help="Run only these variants (default: all).")
    parser.add_argument("--model", help="Model to train: a folder, a Hugging Face id or default:SIZE.")
    parser.add_argument("--jobs", type=int, default=1, help="Number of concurrent runs (default: 1).")
    parser.add_argument("--minutes", type=float, default=600.0, help="Stop all runs after this time (default: 600).")
    add_gpu_flags(parser, workers=0)
    parser.add_argument(
        "--store", action="store_true", help="Store the trajectories of every step, for `make release-checkpoints`."
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="Other settings; such runs are not in the tables.",
    )
    parser.add_argument("--hardware", default="CPU", help="Description of the hardware for the results.")
    parser.add_argument("--out", type=Path, default=Path("runs") / "papers", help="Folder for the runs.")
    parser.add_argument("--results", type=Path, default=HERE / "results" / f"{name}.jsonl", help="Data file.")
    parser.add_argument("--list", action="store_true", help="Only list the runs and whether they have finished.")
    parser.add_argument("--table", action="store_true", help="Only write the tables and figures in docs/papers.md.")
    return parser

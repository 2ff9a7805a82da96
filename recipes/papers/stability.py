"""Train on several games with default settings and seeds that no setting was tuned on.

    python recipes/papers/stability.py --games demo --seeds 101 102
    python recipes/papers/stability.py --gpu --mps --jobs 5 --minutes 9    # five games, seed 101 first
    python recipes/papers/stability.py --gpu --runs sudoku:105 babyai:104  # only these runs
    python recipes/papers/stability.py --table                             # write the tables in docs/

Each run is a `palestra train` process, and `--jobs` runs share the machine. Every run that ends, also one that failed
or was stopped by `--minutes`, is appended to `results/stability.jsonl`. Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from files import DOCS, HERE, append, claimed, ended, finished, remove_training_state, results, write_section
from mps import service
from processes import stopping
from runner import run_jobs, train
from settings import LARGE_BATCHES, add_gpu_flags, digest, given, hardware

from palestra.training.reporting.metrics import read

RESULTS = HERE / "results" / "stability.jsonl"
PAGE = DOCS / "experiments.md"
RUNS_PAGE = DOCS / "stability-runs.md"
SEEDS = (101, 102, 103, 104, 105)
USUAL = ("guess_interval", "mastermind_consistent", "sudoku", "hanoi", "babyai")  # for untrained models on a GPU
EARLIER = "same entropy bonus"  # label of runs with earlier defaults, which had --entropy-failed 1
GOAL = 0.9  # success rate at the end that every run should have
PARTIAL = {"partial_credit": True, "success_reward": 2.0}
RANDOM_RECIPES = {"max_turns": 20, "random_recipes": 0.5}
TEXTCRAFT_PRETRAINED: dict[str, Any] = {
    "env": "textcraft:Depth2-v0",
    "model": "models/smollm2",
    "warm_player": "expert",
    "steps": 100,
    "target": 0.94,
}

# Only the environment, the size of the model, the number of steps and the target are given; the rest are defaults.
# `textcraft_pretrained` has a pretrained model (`palestra init-model smollm2 --out models/smollm2`), which imitates the
# expert before RL, and random recipes in half of the training episodes. `*_sparse` are the same games with a reward for
# success only, and `mastermind_consistent` is the same game as `mastermind` with a different reward before success, and
# without the list of all guesses in every observation.
GAMES: dict[str, dict[str, Any]] = {
    "demo": {"env": "game:GuessTheNumber-v0-easy", "model": "default:0.1M", "steps": 100, "target": 0.97},
    "guess": {"env": "game:GuessTheNumber-v0-hard", "env_kwargs": PARTIAL, "steps": 400, "target": 0.94},
    "guess_interval": {
        "env": "game:GuessTheNumber-v0-hard",
        "env_kwargs": {**PARTIAL, "progress_by": "interval"},
        "steps": 400,
        "target": 0.94,
    },
    "mastermind": {"env": "game:Mastermind-v0-easy", "env_kwargs": PARTIAL, "steps": 400, "target": 0.9},
    "mastermind_consistent": {
        "env": "game:Mastermind-v0-easy",
        "env_kwargs": {"consistent_reward": 0.5, "success_reward": 2.0, "show_history": False},
        "steps": 400,
        "target": 0.94,
    },
    "sudoku": {"env": "game:Sudoku-v0-easy", "env_kwargs": {"partial_credit": True}, "steps": 200, "target": 0.9},
    "hanoi": {"env": "game:TowerofHanoi-v0-easy", "steps": 100, "target": 0.94},
    "babyai": {"env": "babyai:GoToLocalS8N7-v0", "steps": 100, "target": 0.94},
    "textcraft": {
        "env": "textcraft:Depth2-v0",
        "env_kwargs": {**PARTIAL, "max_turns": 20},  # experts need up to 7 turns
        "steps": 200,
        "target": 0.9,
    },
    "textcraft_pretrained": {**TEXTCRAFT_PRETRAINED, "env_kwargs": {**PARTIAL, **RANDOM_RECIPES}},
    "guess_sparse": {"env": "game:GuessTheNumber-v0-hard", "steps": 400, "target": 0.9},
    "mastermind_sparse": {"env": "game:Mastermind-v0-easy", "steps": 400, "target": 0.9},
    "sudoku_sparse": {"env": "game:Sudoku-v0-easy", "steps": 200, "target": 0.9},
    "textcraft_pretrained_sparse": {**TEXTCRAFT_PRETRAINED, "env_kwargs": RANDOM_RECIPES},
}
# Rewards before success, and whether observations state them; partial credit is computed from the solution.
CREDIT = {
    "guess": ("distance to the hidden number", "hidden state"),
    "guess_interval": ("halvings of the interval", "observed"),
    "mastermind": ("digits in place", "observed"),
    "mastermind_consistent": ("guesses that agree with all feedback", "observed"),
    "sudoku": ("correct cells", "determined by the clues"),
    "textcraft": ("steps of the plan", "hidden state"),
    "textcraft_pretrained": ("steps of the plan", "hidden state"),
}
COMMON: dict[str, Any] = {"model": "default:1M", "eval_every": 5, "eval_episodes": 256, "store": False}


def settings_of(game: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of a run, without its folder."""
    return {**COMMON, **GAMES[game], **hardware(args), **given(args), "seed": seed}


def key_of(game: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields by which a run is found in the data file."""
    same = LARGE_BATCHES if args.gpu else {}  # the token budget depends on how many runs share the GPU
    settings = {**settings_of(game, seed, args), **same}
    return {"game": game, "seed": seed, "label": args.label, "settings": digest(settings)}


def run_one(game: str, seed: int, args: argparse.Namespace, deadline: float) -> None:
    """Train with one seed and append the result."""
    settings = settings_of(game, seed, args)
    key = key_of(game, seed, args)
    folder = args.out / f"{args.label}-{game}-{seed}-{key['settings']}".replace(" ", "-").replace(",", "")
    with claimed(folder) as free:
        left = deadline - time.monotonic()
        if not free or finished(results(args.results), key) or left < 20 or stopping():
            return
        started = time.monotonic()
        code = train(settings, folder, left)
        rows = read(folder / "metrics.jsonl")
        reached = next((row["step"] + 1 for row in rows if row["step"] >= 0 and _reached(row, settings)), None)
        seconds = time.monotonic() - started
        if code == 0 and reached and args.further:
            more = {**settings, "steps": reached + args.further, "target": 0.0}
            train(more, folder, deadline - time.monotonic())
        record(args, key, settings, read(folder / "metrics.jsonl"), reached, code, seconds)
        if code == 0:
            remove_training_state(folder)


def _reached(row: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    return bool(row.get("eval_success", 0.0) >= settings["target"])


def record(
    args: argparse.Namespace,
    key: Mapping[str, Any],
    settings: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    reached: int | None,
    code: int | None,
    seconds: float,
) -> None:
    """Append a run's result to the data file; `seconds` is the time until the target was reached or the run ended."""
    evaluations = [(row["step"] + 1, round(row["eval_success"], 4)) for row in rows if "eval_success" in row]
    line = {
        **key,
        "env": settings["env"],
        "env_kwargs": settings.get("env_kwargs", {}),
        "model": settings["model"],
        "steps": max((row["step"] + 1 for row in rows), default=0),
        "success": evaluations,
        "training": [(r["step"] + 1, round(r["success"], 4)) for r in rows if "eval_success" in r and "success" in r],
        "target": settings["target"],
        "reached": reached,
        "final": next(
            (round(row["final_success"], 4) for row in rows if "final_success" in row), None
        ),  # at the target
        "seconds": round(seconds),
        "ended": ended(code),
        "rollbacks": sum(bool(row.get("rollback")) for row in rows),
        "backtracked": sum(bool(row.get("backtracked")) for row in rows),
        "hardware": args.hardware,
        "jobs": args.jobs,
    }
    append(args.results, line)
    print(
        json.dumps({k: line[k] for k in ("game", "seed", "steps", "reached", "final", "seconds", "ended")}), flush=True
    )


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table with one line per run."""
    names = (
        "game",
        "reward before success",
        "seed",
        "before",
        "best",
        "in training",
        "target reached at step",
        "final",
        "further steps",
        "lowest after",
        "s",
        "ended",
    )
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    order = list(GAMES)
    for row in sorted(rows, key=lambda r: (r["label"] != "defaults", r["label"], order.index(r["game"]), r["seed"])):
        rates = [success for _, success in row["success"]]
        final = "" if row["final"] is None else f"{row['final']:.1%}"
        reached = row["reached"] or f"not in {row['steps']}"
        later = [success for step, success in row["success"] if row["reached"] and step > row["reached"]]
        further = f"{row['steps'] - row['reached']} | {min(later):.1%}" if later else " | "
        notes = [row["label"]] if row["label"] != "defaults" else []
        if not _current(row):
            notes.append(", ".join(f"{key}={value}" for key, value in row["env_kwargs"].items()) or "sparse reward")
        name = f"{row['game']} ({'; '.join(notes)})" if notes else row["game"]
        before = f"{rates[0]:.1%} | {max(rates):.1%}" if rates else " | "
        training = f"{row['training'][-1][1]:.1%}" if row.get("training") else ""  # not in older rows
        seconds = "" if row["seconds"] is None else row["seconds"]
        numbers = f"{before} | {training} | {reached} | {final} | {further} | {seconds}"
        credit = {"partial_credit", "consistent_reward"} & row["env_kwargs"].keys()
        rewards = "{} ({})".format(*CREDIT[row["game"]]) if credit else "none"
        lines.append(f"| {name} | {rewards} | {row['seed']} | {numbers} | {row['ended']} |")
    return "\n".join(lines)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table with one line per game: the runs with the current defaults and the seeds in `SEEDS`.

    A game that has not been run with the current defaults has the runs with earlier ones, and their label. If a seed
    was run several times, one run counts: a finished run before a stopped one and that before a failed one, then one
    with the current target, then one with the current settings of the environment, then the newest one that reached its
    target or else the longest one. "Lowest later" is over all runs with the current target, and the last column also
    has the seed's other runs that did not reach the target in as many steps.
    """
    titles = (
        "reward before success",
        "final at least 90%",
        "target reached",
        "steps",
        "s",
        "final, lowest",
        "lowest later",
    )
    lines = [f"| game | {' | '.join(titles)} | target not reached: best, at step |", "|---" * (len(titles) + 2) + "|"]
    for game in GAMES:
        every = [r for r in rows if r["game"] == game and r["seed"] in SEEDS]
        label = "defaults" if any(r["label"] == "defaults" for r in every) else EARLIER
        runs = [r for r in every if r["label"] == label]
        target = GAMES[game]["target"]
        runs.sort(
            key=lambda r: (
                ("failed", "stopped", "finished").index(r["ended"].partition(" ")[0]),
                r["target"] == target,
                _current(r),
                bool(r["reached"]),
                0 if r["reached"] else r["steps"],
            )
        )
        chosen = {r["seed"]: r for r in runs}
        reached = [r for r in chosen.values() if r["reached"]]
        again = [r for r in runs if not r["reached"] and r["steps"] >= (chosen[r["seed"]]["reached"] or math.inf)]
        others = [_unfinished(chosen[seed]) for seed in sorted(chosen) if not chosen[seed]["reached"]]
        comparable = [r for r in runs if r["reached"] and (r["target"] == target or r is chosen[r["seed"]])]
        later = [s for r in comparable for step, s in r["success"] if step > r["reached"]]
        finals = [r["final"] for r in chosen.values() if r["final"] is not None]
        cells = [
            f"{game} ({label})" if runs and label == EARLIER else game,
            CREDIT[game][1] if game in CREDIT else "none",
            f"{sum(final >= GOAL for final in finals)} of {len(chosen)}" if chosen else "not run yet",
            f"{len(reached)} of {len(chosen)}" if chosen else "",
            _range([r["reached"] for r in reached]),
            _range([r["seconds"] for r in reached if r["seconds"] is not None]),
            f"{min(finals):.1%}" if finals else "",
            f"{min(later):.1%}" if later else "",
            "; ".join([*others, *(f"another run of {_unfinished(r)}" for r in again)]),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _current(row: Mapping[str, Any]) -> bool:
    """Return whether a run had the settings of the environment that its game has now."""
    return bool(row["env_kwargs"] == GAMES[row["game"]].get("env_kwargs", {}))


def _unfinished(row: Mapping[str, Any]) -> str:
    if not row["success"]:
        return f"{row['seed']}: in the warm start"
    step, success = max(row["success"], key=lambda pair: (pair[1], pair[0]))
    return f"{row['seed']}: {success:.1%}, {step}"


def _range(numbers: Sequence[int]) -> str:
    if not numbers:
        return ""
    return f"{min(numbers)} to {max(numbers)}" if min(numbers) < max(numbers) else str(numbers[0])


def _pair(text: str) -> tuple[str, int]:
    game, _, seed = text.partition(":")
    if game not in GAMES or not seed.isdigit():
        raise argparse.ArgumentTypeError(f"expected GAME:SEED with a game from {', '.join(GAMES)}; got {text!r}")
    return game, int(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train with default settings on seeds that no setting was tuned on.")
    parser.add_argument(
        "--games",
        nargs="+",
        choices=list(GAMES),
        default=USUAL,
        metavar="GAME",
        help=f"Games to train on: {', '.join(GAMES)} (default: {' '.join(USUAL)}).",
    )
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=list(SEEDS), metavar="SEED", help="Seeds (default: 101 to 105)."
    )
    parser.add_argument(
        "--runs",
        nargs="+",
        type=_pair,
        metavar="GAME:SEED",
        help="Run these instead of all seeds of --games, in order.",
    )
    parser.add_argument("--jobs", type=int, default=1, help="Number of concurrent runs (default: 1).")
    parser.add_argument("--minutes", type=float, default=600.0, help="Stop all runs after this time (default: 600).")
    parser.add_argument(
        "--further", type=int, default=0, help="Steps to train after the target is reached (default: 0)."
    )
    add_gpu_flags(parser, workers=2)
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="Other settings, for variants."
    )
    parser.add_argument("--label", default="defaults", help="Name of the variant in the results (default: defaults).")
    parser.add_argument("--hardware", default="CPU", help="Description of the hardware for the results.")
    parser.add_argument("--out", type=Path, default=Path("runs") / "stability", help="Folder for the runs.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="Data file.")
    parser.add_argument("--table", action="store_true", help="Only write the tables in docs/.")
    args = parser.parse_args()
    if args.table:
        rows = results(args.results)
        write_section(PAGE, "stability", summary(rows))
        write_section(RUNS_PAGE, "stability runs", table(rows))
        return
    deadline = time.monotonic() + 60 * args.minutes
    runs = args.runs or [(game, seed) for seed in args.seeds for game in args.games]
    with service(args.gpu and args.mps):
        run_jobs([partial(run_one, game, seed, args, deadline) for game, seed in runs], args.jobs)


if __name__ == "__main__":
    main()

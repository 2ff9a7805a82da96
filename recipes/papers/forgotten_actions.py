"""Train GuessTheNumber without two of the ten numbers, then with all of them, with and without `--kl-unsolved`.

    python recipes/papers/forgotten_actions.py --seeds 1 2 3 --coefs 0 0.1 --jobs 2
    python recipes/papers/forgotten_actions.py --table                     # write the table in docs/

In the first part, the model learns that two numbers are never right, and no longer guesses them. In the second part,
episodes with these numbers fail until it guesses them again. Every finished run is appended to
`results/forgotten_actions.jsonl`, and is not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from files import DOCS, HERE, append, ended, finished, results, write_section
from processes import palestra
from runner import run_jobs
from settings import flags_of

from palestra.envs.games.guess_the_number import GuessTheNumber
from palestra.training.reporting.metrics import read

RESULTS = HERE / "results" / "forgotten_actions.jsonl"
PAGE = DOCS / "defaults.md"
MISSING = (3, 8)
STEPS, FURTHER = 60, 60  # steps in the first and in the second part
PART = "first-part"  # a file in this folder: the run is in its first part
COMMON: dict[str, Any] = {
    "model": "default:0.1M",
    "device": "cpu",
    "threads": 1,
    "eval_every": 5,
    "eval_episodes": 256,
    "target": 0.0,
    "rollback": 0,  # the success rate falls when the second part begins
    "store": False,
}


class WithoutSome(GuessTheNumber):
    """Numbers from 1 to 10; as long as the file `first_part` exists, two of them are never hidden."""

    def __init__(self, *, first_part: str = "", **options: Any) -> None:
        super().__init__(**{"min_number": 1, "max_number": 10, "max_turns": 4, **options})
        self.first_part = first_part

    def setup(self) -> None:
        super().setup()
        while self.hidden in MISSING and os.path.exists(self.first_part):  # noqa: PTH110  # called for every episode
            super().setup()


def run_one(seed: int, coefficient: float, args: argparse.Namespace) -> None:
    """Train with one seed and append the result."""
    key = {"seed": seed, "kl_unsolved": coefficient}
    if finished(results(args.results), key):
        return
    folder = args.out / f"{coefficient:g}-{seed}"
    first_part = folder.with_name(f"{folder.name}-{PART}").resolve()
    settings = {
        **COMMON,
        "env": "forgotten_actions:WithoutSome",
        "env_kwargs": {"first_part": str(first_part)},
        "seed": seed,
        "kl_unsolved": coefficient,
        "out": str(folder),
    }
    started = time.monotonic()
    folder.parent.mkdir(parents=True, exist_ok=True)
    if max((row["step"] + 1 for row in read(folder / "metrics.jsonl")), default=0) < STEPS:
        first_part.touch()
        code = train({**settings, "steps": STEPS}, folder)
        if code != 0:
            sys.exit(f"{folder} {ended(code)}; see {folder}.log")
    first_part.unlink(missing_ok=True)
    code = train({**settings, "steps": STEPS + FURTHER}, folder)
    rows = read(folder / "metrics.jsonl")
    success = [(row["step"] + 1, round(row["eval_success"], 4)) for row in rows if "eval_success" in row]
    seconds = round(time.monotonic() - started)
    append(args.results, {**key, "success": success, "seconds": seconds, "ended": ended(code)})
    print(json.dumps({**key, "ended": ended(code), "last": success[-1:]}), flush=True)


def train(settings: Mapping[str, Any], folder: Path) -> int | None:
    """Run `palestra train` and return its exit code."""
    return palestra(["train", *flags_of(settings), "--plain"], folder.with_name(f"{folder.name}.log"), 3600.0)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table with one line per finished run."""
    steps = (STEPS, *range(STEPS + 5, STEPS + FURTHER + 1, 5))
    groups: defaultdict[float, list[Mapping[str, Any]]] = defaultdict(list)
    for row in (row for row in rows if row["ended"] == "finished"):
        groups[row["kl_unsolved"]].append(row)
    lines = [
        f"| `--kl-unsolved` | seed | {' | '.join(f'{step}' for step in steps)} |",
        "|---" * (len(steps) + 2) + "|",
    ]
    for coefficient, runs in sorted(groups.items()):
        for row in sorted(runs, key=lambda row: row["seed"]):
            success = dict(row["success"])
            cells = [f"{success[step]:.1%}" if step in success else "" for step in steps]
            lines.append(f"| {coefficient:g} | {row['seed']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train without two numbers, then with all of them.")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], metavar="SEED", help="Default: 1 2 3.")
    parser.add_argument(
        "--coefs", nargs="+", type=float, default=[0.0, 0.1], metavar="COEF", help="Values of --kl-unsolved (0 0.1)."
    )
    parser.add_argument("--jobs", type=int, default=1, help="Number of concurrent runs (default: 1).")
    parser.add_argument("--out", type=Path, default=Path("runs") / "forgotten", help="Folder for the runs.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="Data file.")
    parser.add_argument("--table", action="store_true", help="Only write the table in docs/.")
    args = parser.parse_args()
    if args.table:
        write_section(PAGE, "forgotten actions", table(results(args.results)))
        return
    run_jobs([partial(run_one, seed, coef, args) for seed in args.seeds for coef in args.coefs], args.jobs)


if __name__ == "__main__":
    main()

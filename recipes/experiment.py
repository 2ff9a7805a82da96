"""Compare training variants over several seeds from the same initial model, in one table and one plot.

The other scripts in this folder use this module. Each run is a `palestra train` process, and `--jobs` runs are executed
at a time. Finished runs are not repeated, so an interrupted experiment can be resumed.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from palestra.training.recipe import from_mapping
from palestra.training.reporting.metrics import read

T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36}  # quantiles of Student's t by degrees of freedom
BANDS = 3  # maximum number of variants whose intervals are plotted as bands

SETTINGS: dict[str, Any] = {  # settings for a small model that has learned the action format
    "model": "default:0.1M",
    "steps": 60,
    "episodes": 512,
    "concurrency": 512,
    "max_tokens": 6,  # just long enough for a guess
    "optimizer": "muon",
    "lr": 5e-3,
    "lr_schedule": "linear",
    "target_kl": 0.03,
    "max_grad_norm": 0.3,
    "minibatches": 8,
    "entropy": 0.003,
    "kl_backtrack": 0.1,
    "warm_batch": 32,
    "warm_lr": 1.2e-2,
    "warm_beta": 0.0,  # RL starts from a policy that plays at random
    "rollback": 0.0,  # all variants train for the same number of steps from their own weights
    "eval_every": 5,
    "save_every": 1000,
    "keep": 1,
    "store": False,
    "threads": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    name: str
    settings: Mapping[str, Any]


def arguments(description: str, out: str) -> argparse.Namespace:
    """Parse the flags that all scripts in this folder accept."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path("runs") / out)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="Number of concurrent runs, one core each (default: 2).")
    parser.add_argument("--steps", type=int, default=SETTINGS["steps"])
    parser.add_argument("--episodes", type=int, default=SETTINGS["episodes"])
    parser.add_argument("--eval-episodes", type=int, default=256)
    parser.add_argument("--warm-start", type=int, default=3000)
    parser.add_argument("--only", nargs="+", default=[], help="Run only these variants.")
    return parser.parse_args()


def start_of(folder: Path, settings: Mapping[str, Any], seed: int) -> Path:
    """Return the initial model for a seed, which learned the action format from a random player, but no strategy."""
    path = folder / f"start-{seed}"
    if not (path / "config.json").exists():
        from palestra.training.learner import Learner
        from palestra.training.policy import load_policy
        from palestra.training.warm_start import warm_start

        config = from_mapping({**settings, "seed": seed})
        learner = Learner(load_policy(config), config)
        asyncio.run(warm_start(learner, config))
        learner.policy.tokenizer.save_pretrained(path)
        learner.policy.model.save_pretrained(path)
    return path


def run(args: argparse.Namespace, folder: Path, base: Mapping[str, Any], variants: Sequence[Variant]) -> dict[str, Any]:
    """Run every variant with every seed; return their metrics as {variant: [rows of seed 1, ...]}."""
    sizes = {"steps": args.steps, "episodes": args.episodes, "eval_episodes": args.eval_episodes}
    settings = {**SETTINGS, **base, **sizes}
    variants = [variant for variant in variants if not args.only or variant.name in args.only]
    jobs = []
    with ThreadPoolExecutor(args.jobs) as pool:
        seeds = range(1, args.seeds + 1)
        start_settings = {**settings, "warm_start": args.warm_start}
        starts = dict(zip(seeds, pool.map(lambda seed: _start(folder, start_settings, seed), seeds), strict=True))
        for variant in variants:
            for seed in seeds:
                out = folder / f"{variant.name}-{seed}"
                given = {**settings, **variant.settings, "model": str(starts[seed]), "seed": seed, "out": str(out)}
                jobs.append(pool.submit(_train, given))
        for job in jobs:
            job.result()
    return {v.name: [read(folder / f"{v.name}-{seed}" / "metrics.jsonl") for seed in seeds] for v in variants}


def _start(folder: Path, settings: Mapping[str, Any], seed: int) -> Path:
    """Create the initial model in a separate process, so that several models can be created in parallel."""
    code = f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}]; import experiment, pathlib; "
    code += f"experiment.start_of(pathlib.Path({str(folder)!r}), {dict(settings)!r}, {seed})"
    subprocess.run([sys.executable, "-c", code], check=True)
    return folder / f"start-{seed}"


def _train(settings: Mapping[str, Any]) -> None:
    flags: list[str] = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", str(value)]
    subprocess.run([sys.executable, "-m", "palestra", "train", *flags, "--quiet"], check=True)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the half-width of its 95% interval (Student's t)."""
    mean = fmean(values)
    if len(values) < 2:
        return mean, 0.0
    return mean, T95.get(len(values) - 1, 1.96) * stdev(values) / len(values) ** 0.5


def last(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    """Return the last value of a metric."""
    return float(next(row[key] for row in reversed(rows) if key in row))


def table(results: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], columns: Mapping[str, str]) -> str:
    """Return a Markdown table of the means and 95% intervals over seeds; the first metric is also listed by seed."""
    first = next(iter(columns))
    lines = [f"| | {' | '.join(columns)} | {first} by seed |", "|---" * (len(columns) + 2) + "|"]
    for name, runs in results.items():
        cells = []
        for key in columns.values():
            mean, half = interval([last(rows, key) for rows in runs])
            cells.append(f"{mean:.3f} ± {half:.3f}")
        cells.append(", ".join(f"{last(rows, columns[first]):.2f}" for rows in runs))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(path: Path, panels: Mapping[str, Mapping[str, Sequence[Any]]], key: str, label: str) -> None:
    """Plot one panel per task and one line per variant: the mean over seeds, with its 95% interval as a band.

    Bands for many variants would overlap, so with more than `BANDS` variants the last step's interval is plotted as an
    error bar next to the lines, with one dot per seed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4 * len(panels), 4.2), layout="constrained")
    for axis, (title, results) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for place, (name, runs) in enumerate(results.items(), start=1):
            steps = [row["step"] + 1 for row in runs[0] if key in row]
            values = [[row[key] for row in rows if key in row] for rows in runs]
            mean, half = zip(*(interval(at) for at in zip(*values, strict=True)), strict=True)
            (line,) = axis.plot(steps, mean, label=name)
            if len(results) <= BANDS:
                low = [m - h for m, h in zip(mean, half, strict=True)]
                high = [m + h for m, h in zip(mean, half, strict=True)]
                axis.fill_between(steps, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
            else:
                beside = steps[-1] * (1 + 0.03 * place)
                axis.errorbar(beside, mean[-1], half[-1], color=line.get_color(), capsize=3, linewidth=1)
                axis.scatter([beside] * len(runs), [one[-1] for one in values], color=line.get_color(), s=12)
        axis.set(title=title, xlabel="step", ylabel=label)
        if key.endswith("success"):
            axis.set_ylim(0.0, 1.02)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)

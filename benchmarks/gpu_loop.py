"""Measure the whole training loop on a GPU: tokens sampled and learned per second, and the share of time per phase.

    python benchmarks/gpu_loop.py [--shapes 1M 135M 0.6B 1.7B] [--steps 3] [--out FILE]

Every shape trains on GuessTheNumber-hard with ReBN through the synchronous trainer. The weights are random, and random
actions replace the replies, which would lose in the first turn. The phases and rates are the trainer's own metrics. The
first step captures CUDA graphs and compiles kernels, so the table contains the medians of the later steps. Target:
sampling 1,024 episodes with the 1M shape takes at most 0.5 s. `--device cpu --shapes tiny` runs the same code without
meaningful timings.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from gpu_shapes import make_model
from random_actions import RandomActions

if TYPE_CHECKING:
    from palestra.training.sync_trainer import SyncTrainer

SAMPLING_LIMIT = 0.5  # seconds per step for the 1M shape
EPISODES = {"tiny": 8, "1M": 1024, "135M": 512, "0.6B": 256, "1.7B": 128}  # per step
MAX_TOKENS = {"tiny": 4, "1M": 4}  # tokens per reply; 16 for the other shapes


def write_model(shape: str, folder: Path, device: str) -> None:
    """Write a model with random weights; the tokenizer is that of the default models."""
    from palestra.engines.default_model import default_tokenizer

    tokenizer = default_tokenizer()
    changes: dict[str, int] = {"vocab_size": 1024, "max_position_embeddings": 2048} if shape == "tiny" else {}
    dtype = "float32" if device == "cpu" else "bfloat16"
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model = make_model(shape, device, dtype, **changes, **ends)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


async def run_steps(trainer: SyncTrainer, steps: int) -> list[dict[str, Any]]:
    """Run steps without evaluations and checkpoints, and return their metrics."""
    from palestra.rollout.heap import frozen_heap

    with frozen_heap():  # as in `trainer.run`
        async with trainer.engine, trainer.player.processes():
            return [await trainer.iteration(step) for step in range(steps)]


def measure(shape: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from palestra.training.recipe import from_mapping
    from palestra.training.sync_trainer import SyncTrainer

    write_model(shape, folder / shape, args.device)
    episodes = args.episodes or EPISODES[shape]
    config = from_mapping(
        {
            "env": "game:GuessTheNumber-v0-hard",
            "env_kwargs": {"partial_credit": True, "success_reward": 2.0},
            "wrappers": (RandomActions,),
            "model": str(folder / shape),
            "algorithm": "rebn",
            "episodes": episodes,
            "concurrency": episodes,
            "group_size": 1,
            "max_tokens": MAX_TOKENS.get(shape, 16),
            "rollout_workers": args.rollout_workers,
            "token_budget": args.token_budget,
            "device": args.device,
            "steps": args.steps,
            "out": str(folder / f"{shape}-run"),
            "store": False,
        }
    )
    trainer = SyncTrainer(config)
    try:
        rows = asyncio.run(run_steps(trainer, args.steps))
    finally:
        trainer.metrics.close()
    engine: Any = trainer.engine
    return summary(shape, episodes, engine.runner, rows)


def summary(shape: str, episodes: int, runner: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    later = rows[1:] or rows
    phases = {key.removeprefix("seconds_"): median(row[key] for row in later) for key in later[0] if "seconds_" in key}
    total = sum(phases.values())
    metrics = {
        "shape": shape,
        "runner": runner,
        "episodes": episodes,
        "turns": median(row["turns_per_episode"] for row in later),
        "sampled tokens/s": median(row["tokens_per_second"] for row in later),
        "learned tokens/s": median(row.get("learned_tokens_per_second", 0.0) for row in later),
        "s per step": total,
        **{f"{name} s": seconds for name, seconds in phases.items()},
        **{f"{name} %": 100 * seconds / total for name, seconds in phases.items()},
        "sampling s, each step": [round(row["seconds_sampling"], 3) for row in rows],
        "learning s, each step": [round(row["seconds_learning"], 3) for row in rows],
    }
    if "gpu_memory_gb" in later[0]:
        metrics["GPU memory GiB"] = max(row["gpu_memory_gb"] for row in rows)
    return metrics


def show(results: list[dict[str, Any]]) -> None:
    keys = list({key: None for result in results for key in result})
    print(f"| {' | '.join(keys)} |\n|{'---|' * len(keys)}")
    for result in results:
        cells = (f"{result[key]:,.4g}" if isinstance(result.get(key), float) else str(result.get(key)) for key in keys)
        print(f"| {' | '.join(cells)} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cuda", help="Device of the learner and the engine (default: cuda).")
    parser.add_argument("--shapes", nargs="+", default=["1M", "135M", "0.6B", "1.7B"], choices=list(EPISODES))
    parser.add_argument("--steps", type=int, default=3, help="Number of steps; the first is a warm-up (default: 3).")
    parser.add_argument("--episodes", type=int, default=0, help="Episodes per step (default: depends on the shape).")
    parser.add_argument(
        "--rollout-workers",
        type=int,
        default=None,
        help="Processes that play episodes (default: the trainer's default).",
    )
    parser.add_argument("--token-budget", type=int, default=65_536, help="Tokens per micro-batch (default: 65,536).")
    parser.add_argument("--out", type=Path, default=None, help="Write all numbers to this JSON file.")
    args = parser.parse_args()
    results = []
    with TemporaryDirectory() as folder:
        for shape in args.shapes:
            results.append(measure(shape, args, Path(folder)))
            show(results[-1:])
            sys.stdout.flush()
            if args.out is not None:
                args.out.write_text(json.dumps(results, indent=1))
    print()
    show(results)
    seconds = {result["shape"]: result["sampling s"] for result in results}
    missed = args.device != "cpu" and seconds.get("1M", 0.0) > SAMPLING_LIMIT
    if missed:
        print(f"MISSED  sampling takes {seconds['1M']:.2f} s per step with the 1M shape; limit: {SAMPLING_LIMIT:g} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

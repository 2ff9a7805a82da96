"""Compare the time that asynchronous and synchronous training need to reach a success rate on a slow environment.

The game is GuessTheNumber-easy with artificial latency: most steps sleep briefly, a few sleep much longer. The duration
depends only on the seed and the turn, so that the latency is the same in both modes. Both runs have the same settings,
initial model and seed. The time is measured from the first step to the evaluation that reaches the target; the time
spent on evaluations is subtracted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import palestra
from palestra.core import Env, Reset
from palestra.envs.games.guess_the_number import GuessTheNumber
from palestra.seeding import child_seed
from palestra.training import train
from palestra.training.recipe import from_mapping
from palestra.types import Step

ENV = "bench:SlowGuess-v0"


class SlowGuess(GuessTheNumber):
    """GuessTheNumber-easy with `median` seconds of latency per step; one step in twenty is `tail` times slower."""

    def __init__(self, *, median: float = 0.05, tail: float = 20.0, **options: Any) -> None:
        super().__init__(min_number=1, max_number=10, max_turns=4, **options)
        self._median = median
        self._tail = tail
        self._delay_rng = Random(0)

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        result = self.reset(seed=seed, options=options)
        self._delay_rng = Random(child_seed(seed or 0, "latency"))
        return result

    async def astep(self, action: str) -> Step:
        factor = self._tail if self._delay_rng.random() < 0.05 else 1.0
        await asyncio.sleep(factor * self._median * self._delay_rng.lognormvariate(0.0, 0.5))
        return self.step(action)


def make(**options: Any) -> Env:
    return SlowGuess(**options)


def train_to_target(folder: Path, args: argparse.Namespace, *, asynchronous: bool) -> dict[str, Any]:
    """Train until the target success rate is reached; return the time and staleness statistics."""
    config = from_mapping(
        {
            "env": ENV,
            "seed": args.seed,
            "out": str(folder),
            "steps": args.steps,
            "episodes": args.episodes,
            "concurrency": args.episodes,
            "algorithm": args.algo,
            "target": args.target,
            "eval_every": 5,
            "warm_start": args.warm_start,
            "asynchronous": asynchronous,
            "staleness": args.staleness,
            "threads": 1,
            "lr": args.lr,
            "kl_backtrack": 0.1,
            "max_tokens": 6,
            "store": False,
            "save_every": 1000,
            "env_kwargs": json.dumps({"median": args.median, "tail": args.tail}),
        }
    )
    run = train(config, overwrite=True, log=print)
    steps = [row for row in run.rows if row["step"] >= 0]
    seconds = sum(v for row in steps for k, v in row.items() if k in PHASES)
    ages = [row["staleness_mean"] for row in steps]
    return {
        "seconds": round(seconds, 1),
        "steps": len(steps),
        "success": run.last_success,
        "staleness_mean": round(sum(ages) / len(ages), 2),
        "staleness_max": max(row["staleness_max"] for row in steps),
    }


PHASES = ("seconds_sampling", "seconds_waiting", "seconds_learning")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--target", type=float, default=0.8)
    parser.add_argument("--staleness", type=int, default=4)
    parser.add_argument("--algo", default="ppo")
    parser.add_argument("--median", type=float, default=0.1, help="Median seconds per step.")
    parser.add_argument("--tail", type=float, default=20.0, help="Factor by which one step in twenty is slower.")
    parser.add_argument("--warm-start", type=int, default=3000)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--only", choices=["synchronous", "asynchronous"], help="Run only this mode.")
    args = parser.parse_args()
    palestra.register(ENV, "async_train:make")
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, asynchronous in (("synchronous", False), ("asynchronous", True)):
            if args.only not in (None, name):
                continue
            results[name] = train_to_target(Path(scratch) / name, args, asynchronous=asynchronous)
            print(f"{name}: {json.dumps(results[name])}")
    if args.only is None:
        print(f"asynchronous is {results['synchronous']['seconds'] / results['asynchronous']['seconds']:.2f}x faster")


if __name__ == "__main__":
    main()

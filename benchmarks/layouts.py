"""Compare the time of an imitation update with padded and with packed samples, by the length of the samples.

    python benchmarks/layouts.py [--size 0.1M] [--tokens 150 300 600 1200] [--device cpu]

A batch has 16 random samples that share a prefix; their lengths vary by a quarter around `--tokens`, without the
prefix. A small model's samples are packed by default if they have at least `LONG_SAMPLES` tokens on that device (in
palestra/training/batch.py). The target is that packed samples are faster from there on.
"""

from __future__ import annotations

import argparse
import sys
from random import Random
from statistics import median
from time import perf_counter

import torch

from palestra.rollout.samples import TrainingSample
from palestra.training.batch import LONG_SAMPLES
from palestra.training.learner import Learner
from palestra.training.policy import load_policy
from palestra.training.recipe import from_mapping
from palestra.training.step import clone_samples


def samples_of(tokens: int, prefix: int, rng: Random) -> list[TrainingSample]:
    """Return 16 samples in which every second token is sampled by the policy."""
    start = [rng.randrange(500) for _ in range(prefix)]
    samples = []
    for episode in range(16):
        length = round(tokens * rng.uniform(0.75, 1.25))
        ids = [*start, *(rng.randrange(500) for _ in range(length))]
        mask = [0] * prefix + [i % 2 for i in range(length)]
        turns = [0 if sampled else -1 for sampled in mask]
        samples.append(TrainingSample(ids=ids, mask=mask, logprobs=[0.0] * len(ids), turn_index=turns, episode=episode))
    return samples


def learner_of(args: argparse.Namespace, packing: bool) -> Learner:
    settings = {"env": "game:GuessTheNumber-v0-easy", "model": f"default:{args.size}", "device": args.device}
    config = from_mapping({**settings, "token_budget": 65536})
    learner = Learner(load_policy(config), config)
    layout = "flat" if packing else "padded"
    learner.policy.layout = lambda *_: layout  # type: ignore[method-assign]
    return learner


def seconds(learner: Learner, samples: list[TrainingSample], repeats: int) -> float:
    """Return the median time of an update."""
    weights = [[1.0]] * len(samples)
    times = []
    for _ in range(repeats + 1):
        started = perf_counter()
        clone_samples(learner, samples, weights, 1e-3, observation_weight=1.0)  # reads the loss, so it waits for a GPU
        times.append(perf_counter() - started)
    return median(times[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare updates with padded and packed samples.")
    parser.add_argument("--size", default="0.1M", help="Size of the default model (default: 0.1M).")
    parser.add_argument("--tokens", nargs="+", type=int, default=[150, 300, 600, 1200], help="Lengths of samples.")
    parser.add_argument("--prefix", type=int, default=200, help="Length of the shared prefix (default: 200).")
    parser.add_argument("--device", default="cpu", choices=list(LONG_SAMPLES), help="Device (default: cpu).")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1).")
    parser.add_argument("--repeats", type=int, default=3, help="Updates per measurement (default: 3).")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    padded, packed = learner_of(args, packing=False), learner_of(args, packing=True)
    limit = LONG_SAMPLES[args.device]
    print(f"default:{args.size} on {args.device}; packed by default from {limit} tokens")
    missed = False
    for tokens in args.tokens:
        samples = samples_of(tokens, args.prefix, Random(tokens))
        times = [seconds(learner, samples, args.repeats) for learner in (padded, packed)]
        print(
            f"{tokens:6d} tokens: padded {1000 * times[0]:7.0f} ms, packed {1000 * times[1]:7.0f} ms, "
            f"ratio {times[0] / times[1]:.2f}"
        )
        missed |= tokens >= limit and times[0] < times[1]
    print("target missed" if missed else "all targets are met")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

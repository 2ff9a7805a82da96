"""Measure the peak memory of one training step with the 100M default model on conversations of 4,096 tokens.

    python benchmarks/learner_memory.py [--size 100M] [--tokens 4096] [--episodes 2] [--recompute auto]

A separate process creates the model, its optimizer and synthetic conversations, runs one training step and reports its
peak resident set size, which includes torch and transformers. The target is at most 6 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from math import log
from random import Random
from time import perf_counter
from typing import Any

BAR = 6e9


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run one training step in this process and return its time and peak memory."""
    import torch

    from palestra.rollout.types import Trajectory, Turn
    from palestra.training.learner import Learner
    from palestra.training.policy import load_policy
    from palestra.training.recipe import from_mapping
    from palestra.training.step import reinforcement_step
    from palestra.types import Action, Call

    torch.set_num_threads(args.threads)
    config = from_mapping(
        {
            "env": "game:GuessTheNumber-v0-easy",
            "model": f"default:{args.size}",
            "algorithm": "reinforce",  # has a gradient also with one episode
            "kl_unsolved": 0.0,  # needs no reference model
            "device": "cpu",
            "gradient_checkpointing": args.recompute,
            "token_budget": max(args.tokens, args.budget),
            "optimizer": args.optimizer,
            "minibatches": 1,
        }
    )
    learner = Learner(load_policy(config), config)
    rng = Random(0)
    uniform = -log(learner.policy.model.config.vocab_size)  # close to an untrained model's log-probabilities

    def episode(index: int) -> Trajectory:
        """Return a conversation of `--tokens` tokens, with 192 prompt tokens and 64 sampled tokens per turn."""
        context: list[int] = []
        turns = []
        while len(context) + 256 <= args.tokens:
            context = context + [rng.randrange(500) for _ in range(192)]
            sampled = [rng.randrange(500) for _ in range(64)]
            call = Call(prompt_ids=context, ids=sampled, logprobs=[uniform] * 64, finish="stop", version=0)
            turns.append((call, rng.random()))
            context = context + sampled
        return Trajectory(
            env_id="game:GuessTheNumber-v0-easy",
            kwargs={},
            seed=index,
            group=index,
            member=0,
            turns=tuple(
                Turn(
                    observation="",
                    action=Action(text="", calls=(call,)),
                    reward=reward,
                    terminated=i == len(turns) - 1,
                    truncated=False,
                    info={},
                    agent_seconds=0.0,
                    env_seconds=0.0,
                )
                for i, (call, reward) in enumerate(turns)
            ),
            final_observation="",
            success=True,
        )

    trajectories = [episode(i) for i in range(args.episodes)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    start = perf_counter()
    metrics = reinforcement_step(learner, trajectories, 0)
    return {
        "size": args.size,
        "parameters": sum(p.numel() for p in learner.policy.parameters()),
        "tokens": args.tokens,
        "episodes": args.episodes,
        "recompute": args.recompute,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "before_bytes": before,
        "seconds": perf_counter() - start,
        "grad_norm": metrics["grad_norm"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="100M")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--budget", type=int, default=16384, help="Tokens per micro-batch.")
    parser.add_argument("--recompute", default="auto", choices=("auto", "on", "off"))
    parser.add_argument("--optimizer", default="adamw", choices=("adamw", "muon"))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args)))
        return
    result = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--child"], check=True, stdout=subprocess.PIPE)
    figures = json.loads(result.stdout)
    print(
        f"{figures['parameters'] / 1e6:.0f}M parameters, "
        f"{figures['episodes']} conversations of {figures['tokens']} tokens: "
        f"peak {figures['peak_bytes'] / 1e9:.2f} GB (before the step {figures['before_bytes'] / 1e9:.2f}), "
        f"{figures['seconds']:.0f} s; the target is {BAR / 1e9:.0f} GB"
    )


if __name__ == "__main__":
    main()

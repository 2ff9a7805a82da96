"""Program that trains a tiny model, for tests that kill it: python -m tests.chaos.training_run FOLDER SEED."""

from __future__ import annotations

import sys


def main(out: str, seed: str) -> None:
    from palestra.training import train
    from palestra.training.recipe import from_mapping

    settings = {
        "env": "game:GuessTheNumber-v0-easy",
        "model": "default:0.1M",
        "out": out,
        "seed": int(seed),
        "steps": 3,
        "episodes": 8,
        "group_size": 4,
        "warm_start": 32,
        "warm_epochs": 1,
        "algorithm": "reinforce",  # this algorithm has a gradient even if all returns are equal
        "eval_every": 2,
        "eval_episodes": 4,
        "save_every": 1,
        "max_tokens": 8,
        "threads": 1,
    }
    train(from_mapping(settings))


if __name__ == "__main__":
    main(*sys.argv[1:])

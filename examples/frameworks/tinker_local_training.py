"""Train the default model on GuessTheNumber with tinker-cookbook's RL loop, without the Tinker service.

Rollouts, advantages, training data and the loop come from tinker-cookbook; `local_tinker` samples and updates the
weights in this process.
"""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

from tinker_cookbook.rl import train

from palestra.engines.default_model import default_model
from palestra.integrations.tinker import PalestraDatasetBuilder
from palestra.integrations.tinker_local import local_tinker

NAME = "local/default-model"


def main(env: str, steps: int, tasks: int, group_size: int, learning_rate: float) -> None:
    model, tokenizer = default_model("0.3M", seed=1)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder, local_tinker(model, tokenizer, name=NAME):
        config = train.Config(
            model_name=NAME,
            recipe_name="palestra",
            renderer_name=None,
            dataset_builder=PalestraDatasetBuilder(
                env=env, model_name=NAME, tasks=steps * tasks, batch_size=tasks, group_size=group_size
            ),
            learning_rate=learning_rate,
            max_tokens=8,
            eval_every=0,
            save_every=0,
            log_path=folder,
        )
        asyncio.run(train.main(config))
        for line in (Path(folder) / "metrics.jsonl").read_text().splitlines():
            metrics = json.loads(line)
            reward, turns = metrics["env/all/reward/total"], metrics["env/all/turns_per_episode"]
            print(f"step {metrics['step']}: reward {reward:.3f}, turns {turns:.1f}")
    change = max((value - before[name]).abs().max().item() for name, value in model.named_parameters())
    print(f"largest change of a weight: {change:.6f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    main(**vars(parser.parse_args()))

r"""Train on another library's environment with `palestra train`; print the rewards and the change in the weights.

The default model first imitates random replies in the environment's format, such as `[7]`: "#" in the pattern is
replaced by one of the choices.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

import palestra
from palestra.agents.base import Agent, AgentSession
from palestra.cli import main as palestra_command
from palestra.core import Env
from palestra.rollout import Writer, collect
from palestra.rollout.types import Task
from palestra.types import Action, Observation


class RandomReplies(Agent):
    """Agent that replies with random choices in a fixed format."""

    def __init__(self, pattern: str, choices: list[str]) -> None:
        self.pattern = pattern
        self.choices = choices

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        del env
        return _Session(self, random.Random(seed))


class _Session(AgentSession):
    def __init__(self, agent: RandomReplies, rng: random.Random) -> None:
        self.agent = agent
        self.rng = rng

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        del observation, info
        return Action(text=self.agent.pattern.replace("#", self.rng.choice(self.agent.choices)))


def main(env: str, pattern: str, choices: str, episodes: int, kwargs: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Writer(folder / "replies.jsonl.gz") as writer:
            agent = RandomReplies(pattern, choices.split(","))
            tasks = [Task(env_id=env, seed=seed, kwargs=json.loads(kwargs)) for seed in range(episodes)]
            asyncio.run(collect(agent, tasks, concurrency=1, on_trajectory=writer.write))
        start = palestra.train(
            algorithm="sft",
            data=str(folder / "replies.jsonl.gz"),
            data_keep="all",
            model="default:0.1M",
            lr=5e-3,
            epochs=4,
            batch=4,
            out=str(folder / "start"),
            log=lambda _: None,
        )
        options = "--algorithm grpo --steps 2 --episodes 16 --group-size 8 --concurrency 1 --lr 1e-3 --lr-start 1"
        limits = "--max-tokens 16 --eval-every 0 --eval-episodes 4"
        command = ["train", "--env", env, "--env-kwargs", kwargs, *options.split(), *limits.split()]
        command += ["--model", str(start.model_dir), "--out", str(folder / "run")]
        if code := palestra_command(command):
            raise SystemExit(code)
        before, after = (load_file(next(path.glob("*.safetensors"))) for path in (start.model_dir, folder / "run/last"))
        rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        if row["step"] >= 0:
            print(f"step {row['step']}: reward {row['return']:.3f}")
    change = max((value - before[key]).abs().max().item() for key, value in after.items())
    print(f"largest change of a weight: {change:.6f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("env")
    parser.add_argument("--pattern", required=True)
    parser.add_argument("--choices", required=True)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--kwargs", default="{}")
    main(**vars(parser.parse_args()))

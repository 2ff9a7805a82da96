"""Train on stored trajectories: SFT, DPO and AgentEvol on the same game, with success rates before and after.

An expert and a random player play the same tasks. SFT trains on both players' episodes. DPO then trains on pairs of
episodes in the same task with different returns, so that the model prefers the expert's actions. AgentEvol needs no
expert: in each round it trains on the model's own successful episodes.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

from palestra.agents import Agent, ExpertAgent, RandomAgent
from palestra.rollout import Writer, collect
from palestra.training import train
from palestra.training.recipe import from_mapping

GAME = "game:GuessTheNumber-v0-easy"


def play(agent: Agent, path: Path, episodes: int) -> float:
    """Play episodes with `agent`, store them in `path` and return the success rate."""
    path.unlink(missing_ok=True)
    with Writer(path) as writer:
        result = asyncio.run(collect(agent, GAME, episodes=episodes, seed=5, on_trajectory=writer.write))
    return float(result.metrics["success"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/distil"), help="Folder for the runs.")
    parser.add_argument("--episodes", type=int, default=600, metavar="N", help="Episodes per player (default: 600).")
    parser.add_argument("--eval-episodes", type=int, default=256, metavar="N", help="Episodes per evaluation.")
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="AgentEvol rounds (default: 4).")
    args = parser.parse_args()

    data = args.out / "data"
    rates = {"expert": play(ExpertAgent(), data / "expert.jsonl.gz", args.episodes)}
    rates["random player"] = play(RandomAgent(), data / "random.jsonl.gz", args.episodes)

    def learn(name: str, model: str, **settings: Any) -> str:
        shared = {"env": GAME, "optimizer": "muon", "max_tokens": 8, "eval_episodes": args.eval_episodes}
        own = {"model": model, "out": str(args.out / name), "eval_every": 0, **settings}
        run = train(from_mapping({**shared, **own}), overwrite=True, log=print)
        rates.setdefault("untrained model", run.first_success or 0.0)
        rates[f"after {name}"] = run.last_success or 0.0
        return str(run.folder / "last")

    # Training on the observations as well teaches an untrained model to read them.
    untrained = {"data_keep": "all", "data_observations": True, "epochs": 3, "lr": 1e-2}
    cloned = learn("sft", "default:0.1M", algorithm="sft", data=str(data), **untrained)
    learn("dpo", cloned, algorithm="dpo", data=str(data), epochs=3, lr=3e-4)
    learn("agentevol", cloned, algorithm="agentevol", steps=args.rounds, episodes=args.episodes, epochs=3, lr=1e-3)

    print()
    for name, rate in rates.items():
        print(f"{name:<18} {rate:6.1%}")


if __name__ == "__main__":
    main()

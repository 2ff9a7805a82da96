"""Learn from what others played: transcripts of two players -> SFT on all -> DPO on pairs -> rates before and after.

An expert and a sloppy player play the same tasks. SFT teaches an untrained model to play like either; DPO, on pairs of
one task with different returns, teaches it which of the two to be. AgentEvol does without the expert from there: it
clones the model's own successes, round by round.
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
    """Let `agent` play, keep every episode in `path`; its success rate."""
    path.unlink(missing_ok=True)
    with Writer(path) as writer:
        result = asyncio.run(collect(agent, GAME, episodes=episodes, seed=5, on_trajectory=writer.write))
    return float(result.metrics["success"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/distil"), help="folder of the runs (runs/distil)")
    parser.add_argument("--episodes", type=int, default=600, metavar="N", help="episodes of each player (600)")
    parser.add_argument("--eval-episodes", type=int, default=256, metavar="N", help="of every evaluation (256)")
    parser.add_argument("--rounds", type=int, default=4, metavar="N", help="of AgentEvol (4)")
    args = parser.parse_args()

    data = args.out / "data"
    rates = {"expert": play(ExpertAgent(), data / "expert.jsonl.gz", args.episodes)}
    rates["sloppy player"] = play(RandomAgent(), data / "sloppy.jsonl.gz", args.episodes)

    def learn(name: str, model: str, **settings: Any) -> str:
        shared = {"env": GAME, "optimizer": "muon", "max_tokens": 8, "eval_episodes": args.eval_episodes}
        own = {"model": model, "out": str(args.out / name), "eval_every": 0, **settings}
        run = train(from_mapping({**shared, **own}), resume=False, log=print)
        rates.setdefault("untrained model", run.first_success or 0.0)
        rates[f"after {name}"] = run.last_success or 0.0
        return str(run.folder / "last")

    # An untrained model learns to read the game's answers from them, too.
    untrained = {"data_keep": "all", "data_observations": True, "epochs": 3, "lr": 1e-2}
    cloned = learn("sft", "default:0.1M", algorithm="sft", data=str(data), **untrained)
    learn("dpo", cloned, algorithm="dpo", data=str(data), epochs=3, lr=3e-4)
    learn("agentevol", cloned, algorithm="agentevol", steps=args.rounds, episodes=args.episodes, epochs=3, lr=1e-3)

    print()
    for name, rate in rates.items():
        print(f"{name:<18} {rate:6.1%}")


if __name__ == "__main__":
    main()

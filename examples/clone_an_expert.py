"""Record an expert's episodes, train a model on them, and evaluate it.

    python examples/clone_an_expert.py [EPISODES]

Reinforcement learning can start from the result: palestra train --model runs/cloned --env game:GuessTheNumber-v0-easy
"""

import asyncio
import sys

import palestra
from palestra.agents import ExpertAgent
from palestra.rollout import Writer, collect

GAME = "game:GuessTheNumber-v0-easy"


async def record(path: str, episodes: int) -> None:
    with Writer(path) as writer:
        await collect(ExpertAgent(), GAME, episodes=episodes, seed=1, on_trajectory=writer.write)


if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    asyncio.run(record("expert.jsonl.gz", episodes))
    run = palestra.train(algorithm="sft", data="expert.jsonl.gz", model="default:0.1M", epochs=2, out="runs/cloned")
    result = run.evaluate(env=GAME, episodes=min(episodes, 256))
    losses = [row["loss"] for row in run.rows if "loss" in row]
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, success {result.metrics['success']:.1%}")

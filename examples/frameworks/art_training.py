"""Train the default model on GuessTheNumber with ART's rollouts, advantages and loss, on a CPU."""

import argparse
import asyncio
import tempfile

import art

from palestra.engines.default_model import default_model
from palestra.integrations.art import TorchBackend, play_trajectory, scenarios


async def main(env: str, steps: int, tasks: int, group_size: int, learning_rate: float) -> None:
    network, tokenizer = default_model("0.3M", seed=1)
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    backend = TorchBackend(network, tokenizer, learning_rate=learning_rate, max_length=1024)
    with tempfile.TemporaryDirectory() as folder:
        model = art.TrainableModel(name="default", project="palestra", base_model="default", base_path=folder)
        await model.register(backend)
        for step in range(steps):
            groups = await art.gather_trajectory_groups(
                (
                    art.TrajectoryGroup(play_trajectory(model, scenario, max_tokens=8) for _ in range(group_size))
                    for scenario in scenarios(env, tasks, seed=step)
                ),
                pbar_desc=None,
            )
            trajectories = [trajectory for group in groups for trajectory in group]
            result = await backend.train(model, groups)
            reward = sum(trajectory.reward for trajectory in trajectories) / len(trajectories)
            turns = sum(trajectory.metrics["turns"] for trajectory in trajectories) / len(trajectories)
            print(f"step {step}: reward {reward:.3f}, turns {turns:.1f}, {result.metrics}")
    await backend.close()
    change = max((value - before[name]).abs().max().item() for name, value in network.named_parameters())
    print(f"largest change of a weight: {change:.6f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    asyncio.run(main(**vars(parser.parse_args())))

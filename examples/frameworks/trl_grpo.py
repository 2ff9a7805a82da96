"""Train the default model on GuessTheNumber with TRL's GRPOTrainer, on a CPU.

The model is first trained on games of a random player, which teaches it the action format but no strategy.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import palestra
from palestra.integrations.trl import EnvRollout, env_reward, task_dataset
from palestra.training.optim import Muon


class Recorder(EnvRollout):
    """Records the fraction of successful episodes per step."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.success: list[float] = []

    def __call__(self, prompts: Any, trainer: Any) -> dict[str, list[Any]]:
        output = super().__call__(prompts, trainer)
        self.success.append(sum(map(bool, output["env_success"])) / len(prompts))
        print(f"step {len(self.success) - 1}: success {self.success[-1]:.3f}", flush=True)
        return output


def main(
    env: str, steps: int, episodes: int, updates: int, group_size: int, learning_rate: float, model: str | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if model is None:
            run = palestra.train(env=env, steps=1, episodes=64, out=str(Path(folder) / "warm"), seed=1)
            model = str(run.model_dir)
        rollout = Recorder(max_tokens=12)
        policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        policy.get_input_embeddings().requires_grad_(False)  # most tokens are rare, so their gradients are mostly noise
        matrices = [p for p in policy.parameters() if p.dim() == 2 and p.requires_grad]
        trainer = GRPOTrainer(
            model=policy,
            processing_class=AutoTokenizer.from_pretrained(model),
            reward_funcs=env_reward,
            train_dataset=task_dataset(env, tasks=steps * episodes // group_size, split="train"),
            rollout_func=rollout,
            optimizers=(Muon(matrices, learning_rate), None),
            args=GRPOConfig(
                output_dir=str(Path(folder) / "trl"),
                per_device_train_batch_size=episodes // updates,
                steps_per_generation=updates,
                num_generations=group_size,
                max_steps=steps * updates,
                learning_rate=learning_rate,
                lr_scheduler_type="constant",
                max_completion_length=64,
                loss_type="dr_grpo",
                scale_rewards="batch",
                bf16=False,
                use_cpu=True,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            ),
        )
        trainer.train()
    part = max(1, steps // 6)
    first, last = (sum(values) / part for values in (rollout.success[:part], rollout.success[-part:]))
    noise = ((first * (1 - first) + last * (1 - last)) / (part * episodes)) ** 0.5
    print(f"success {first:.3f} -> {last:.3f} (means of {part} steps; standard error of the difference {noise:.3f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--episodes", type=int, default=512, help="Number of episodes per step.")
    parser.add_argument("--updates", type=int, default=8, help="Number of optimizer updates per step.")
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=4e-3)
    parser.add_argument("--model", help="Folder with a model to start from; skips the warm start.")
    main(**vars(parser.parse_args()))

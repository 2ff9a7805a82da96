"""Train the default model on GuessTheNumber with verl's agent loop, GRPO advantages and policy loss, on a CPU.

verl's AgentLoopWorker plays the episodes with a client for its server manager that samples with Palestra's engine. On
GPUs, start verl's own trainer with `data.train_files` from `write_dataset` instead; see docs/integrations.md.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.core_algos import AdvantageEstimator, get_policy_loss_fn
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout.replica import TokenOutput

from palestra.engines import LocalEngine, Sampling
from palestra.engines.default_model import default_model, save
from palestra.integrations.verl import dataset_rows


class EngineClient:
    """Client with the interface of verl's LLMServerClient that samples with a Palestra engine."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        sampling = Sampling(
            max_tokens=sampling_params["max_tokens"],
            temperature=sampling_params["temperature"],
            stop_ids=tuple(sampling_params.get("stop_token_ids", ())),
        )
        reply = await self.engine.generate(prompt_ids, sampling, conversation=request_id)
        return TokenOutput(token_ids=reply.ids, log_probs=reply.logprobs, stop_reason="completed")


def load_config(model: Path, loops: Path) -> Any:
    """Return verl's default PPO configuration with the model and the agent loop."""
    loops.write_text("- name: palestra\n  _target_: palestra.integrations.verl.PalestraAgentLoop\n  max_tokens: 8\n")
    rollout = "actor_rollout_ref.rollout"
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={model}",
                f"{rollout}.name=vllm",
                f"{rollout}.prompt_length=512",
                f"{rollout}.response_length=512",
                f"{rollout}.calculate_log_probs=True",
                f"{rollout}.agent.agent_loop_config_path={loops}",
                "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
                "actor_rollout_ref.actor.rollout_n=1",
            ],
        )


def batch_of(env: str, tasks: int, group_size: int, seed: int) -> DataProto:
    """Return a batch with `group_size` rows per task, as verl's trainer creates it from a dataset."""
    rows = [row for row in dataset_rows(env, tasks, seed=seed) for _ in range(group_size)]
    columns = {
        "raw_prompt": [row["prompt"] for row in rows],
        "agent_name": [row["agent_name"] for row in rows],
        "extra_info": [row["extra_info"] for row in rows],
        "index": [row["extra_info"]["index"] for row in rows],
        "uid": [str(row["extra_info"]["index"]) for row in rows],
    }
    arrays = {}
    for name, values in columns.items():
        arrays[name] = np.empty(len(rows), dtype=object)
        arrays[name][:] = values
    return DataProto(batch=TensorDict({"row": torch.arange(len(rows))}, batch_size=len(rows)), non_tensor_batch=arrays)


async def main(env: str, steps: int, tasks: int, group_size: int, learning_rate: float) -> None:
    model, tokenizer = default_model("0.3M", seed=1)
    engine = LocalEngine(model, tokenizer=tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = save(model, tokenizer, Path(folder) / "model")
        config = load_config(checkpoint, Path(folder) / "loops.yaml")
        worker = AgentLoopWorker(config, EngineClient(engine))
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        policy_loss = get_policy_loss_fn("vanilla")
        optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
        before = {name: value.detach().clone() for name, value in model.named_parameters()}
        for step in range(steps):
            batch = batch_of(env, tasks, group_size, seed=step)
            output = await worker.generate_sequences(batch)
            output.non_tensor_batch["uid"] = batch.non_tensor_batch["uid"]
            output.batch["token_level_rewards"] = output.batch["rm_scores"]
            output = compute_advantage(output, AdvantageEstimator.GRPO, config=config.algorithm)
            data = output.batch
            async with engine.paused():
                size = data["responses"].shape[1]
                logits = model(
                    data["input_ids"], attention_mask=data["attention_mask"], position_ids=data["position_ids"]
                ).logits[:, -size - 1 : -1]
                log_prob = logits.log_softmax(-1).gather(2, data["responses"][..., None])[..., 0]
                loss, metrics = policy_loss(
                    old_log_prob=data["rollout_log_probs"],
                    log_prob=log_prob,
                    advantages=data["advantages"],
                    response_mask=data["response_mask"],
                    config=actor,
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                await engine.publish(None, engine.version + 1)
            reward = data["rm_scores"].sum(-1).mean().item()
            turns = float(np.mean(output.non_tensor_batch["__num_turns__"])) / 2
            print(f"step {step}: reward {reward:.3f}, turns {turns:.1f}, kl {metrics['actor/ppo_kl']:.5f}")
        change = max((value - before[name]).abs().max().item() for name, value in model.named_parameters())
        print(f"largest change of a weight: {change:.6f}")
    await engine.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    asyncio.run(main(**vars(parser.parse_args())))

"""Train the default model on GuessTheNumber with AReaL's workflow, advantages and PPO update, on a CPU.

AReaL's PPOActor computes the advantages and the loss. `EngineAdapter` and `TorchTrainEngine` take the places of its
inference and training engines, which need GPUs.
"""

import argparse
import asyncio
from collections.abc import Callable
from typing import Any

import torch
from areal.api import ModelRequest, ModelResponse
from areal.api.cli_args import GenerationHyperparameters, NormConfig, PPOActorConfig
from areal.trainer.ppo.actor import PPOActor
from areal.utils.data import concat_padded_tensors

from palestra.engines import LocalEngine, Sampling
from palestra.engines.default_model import default_model
from palestra.integrations.areal import PalestraWorkflow, dataset_rows


class EngineAdapter:
    """The part of AReaL's InferenceEngine that workflows use."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine

    async def agenerate(self, request: ModelRequest) -> ModelResponse:
        config = request.gconfig
        sampling = Sampling(
            max_tokens=config.max_new_tokens,
            temperature=config.temperature,
            stop_ids=tuple(config.stop_token_ids),
        )
        reply = await self.engine.generate(request.input_ids, sampling, conversation=request.rid)
        return ModelResponse(
            input_tokens=request.input_ids,
            output_tokens=reply.ids,
            output_logprobs=reply.logprobs,
            output_versions=[reply.version] * len(reply.ids),
            stop_reason="length" if reply.finish == "length" else "stop",
        )


class TorchTrainEngine:
    """The part of AReaL's TrainEngine that PPOActor uses, for one small model."""

    def __init__(self, model: Any, learning_rate: float) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)

    def train(self, mode: bool = True) -> None:
        self.model.train(mode)

    def get_version(self) -> int:
        return 0

    def train_batch(self, batch: dict[str, Any], loss_fn: Callable[..., Any], loss_weight_fn: Any) -> dict[str, float]:
        ids = batch["input_ids"].long()
        logits = self.model(ids, attention_mask=batch["attention_mask"].long()).logits.float()
        logprobs = logits.log_softmax(-1)
        chosen = logprobs.gather(2, ids.roll(-1, dims=-1)[..., None])[..., 0]
        entropy = -(logprobs.exp() * logprobs).sum(-1).detach()
        loss = loss_fn(chosen, entropy, batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": float(loss.detach())}


async def main(env: str, steps: int, tasks: int, group_size: int, learning_rate: float) -> None:
    model, tokenizer = default_model("0.3M", seed=1)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    engine = LocalEngine(model, tokenizer=tokenizer)
    workflow = PalestraWorkflow(tokenizer, GenerationHyperparameters(max_new_tokens=8, max_tokens=1024))
    config = PPOActorConfig(
        experiment_name="palestra",
        trial_name="example",
        path="default",
        reward_norm=NormConfig(mean_level="group", std_level="group", group_size=group_size),
        adv_norm=None,
        kl_ctl=0.0,
        ppo_n_minibatches=1,
        use_decoupled_loss=False,
        recompute_logprob=False,
    )
    actor = PPOActor(config, TorchTrainEngine(model, learning_rate))
    for step in range(steps):
        rows = [row for row in dataset_rows(env, tasks, seed=step) for _ in range(group_size)]
        adapter = EngineAdapter(engine)
        episodes = await asyncio.gather(*(workflow.arun_episode(adapter, row) for row in rows))
        batch = concat_padded_tensors([episode for episode in episodes if episode is not None])
        reward = batch["rewards"].mean().item()
        async with engine.paused():
            actor._ppo_update(actor._compute_advantages(batch))
            await engine.publish(None, engine.version + 1)
        print(f"step {step}: reward {reward:.3f}, {len(episodes)} episodes")
    await engine.aclose()
    change = max((value - before[name]).abs().max().item() for name, value in model.named_parameters())
    print(f"largest change of a weight: {change:.6f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    asyncio.run(main(**vars(parser.parse_args())))

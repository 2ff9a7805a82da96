"""Train the default model on GuessTheNumber with RL2's sample groups, advantages and PPO loss, on a CPU.

`GenerateServer` takes the place of the SGLang router, which RL2 samples from. On GPUs, start RL2's own trainer with
`rollout.env_path` instead; see docs/integrations.md.
"""

import argparse
import asyncio
import tempfile
from typing import Any, Self

import torch
import torch.distributed as dist
import wandb
from aiohttp import web
from omegaconf import OmegaConf
from RL2.datasets import SampleGroup, pack_tensor_dicts
from RL2.utils.algorithms import actor_ppo_loss, compute_advantages
from RL2.utils.communication import with_session
from RL2.utils.functions import aggregate_values, compute_logps_and_entropy

from palestra.engines import LocalEngine, Sampling
from palestra.engines.default_model import default_model
from palestra.integrations.rl2 import PalestraGenerate, dataset_rows


class GenerateServer:
    """Server with SGLang's `/generate` endpoint that samples with a Palestra engine."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/generate", self.generate)
        self.runner = web.AppRunner(app, access_log=None)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        host, port = self.runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()

    async def generate(self, request: web.Request) -> web.Response:
        return web.json_response(await self.reply(await request.json()))

    async def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a reply in SGLang's format."""
        params = body["sampling_params"]
        sampling = Sampling(
            max_tokens=params["max_new_tokens"],
            temperature=params["temperature"],
            stop_ids=tuple(params["stop_token_ids"]),
        )
        reply = await self.engine.generate(body["input_ids"], sampling)
        meta = {
            "output_token_logprobs": [
                [value, token, None] for value, token in zip(reply.logprobs, reply.ids, strict=True)
            ],
            "finish_reason": {"type": "length" if reply.finish == "length" else "stop"},
            "completion_tokens": len(reply.ids),
        }
        return {"text": reply.text, "meta_info": meta}


def load_config(group_size: int) -> Any:
    """Return the options of RL2's PPO configuration that its functions use, with the values of its file."""
    kl = {"coef": 0.0, "type": None, "reward_estimator": "k1", "loss_estimator": "k2"}
    actor = {"kl": kl, "clip": 0.2, "tis_coef": 0.0, "entropy": {"coef": 0.0}, "avg_level": "token"}
    adv = {"estimator": "reinforce", "responses_per_prompt": group_size, "global_norm": False, "norm_var": True}
    rollout = {"responses_per_prompt": group_size, "sampling_params": {"temperature": 1.0, "max_new_tokens": 8}}
    return OmegaConf.create({"actor": actor, "adv": adv, "rollout": rollout})


@with_session
async def main(env: str, steps: int, tasks: int, group_size: int, learning_rate: float) -> None:
    model, tokenizer = default_model("0.3M", seed=1)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    config = load_config(group_size)
    generate = PalestraGenerate(max_context=1024)
    async with LocalEngine(model, tokenizer=tokenizer) as engine, GenerateServer(engine) as server:
        for step in range(steps):
            groups = [SampleGroup(config.rollout, tokenizer, row) for row in dataset_rows(env, tasks, seed=step)]
            await asyncio.gather(*(group.generate(server.url, generate) for group in groups))
            results = [group.to_all_tensor_dicts_and_metrics() for group in groups]
            samples = [sample for tensors, _ in results for sample in tensors]
            rewards = [reward for _, metrics in results for reward in metrics["rewards"]]
            batch = pack_tensor_dicts([sequence for sample in samples for sequence in sample])
            ends = torch.tensor([0, *(len(sample) for sample in samples)]).cumsum(0)
            compute_advantages(config, batch, ends, step)
            async with engine.paused():
                logits = model(batch["states"], position_ids=batch["position_ids"]).logits.float()
                compute_logps_and_entropy(logits, batch, dist.group.WORLD, return_entropy=True)
                losses, _, kl = actor_ppo_loss(config.actor, batch)
                counts = batch["action_mask"].sum(), batch["eos_mask"].sum()
                loss, kl = aggregate_values((losses, kl), batch["action_mask"], config.actor.avg_level, *counts)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                await engine.publish(None, engine.version + 1)
            turns = sum(sample.turn for group in groups for sample in group.samples) / len(rewards)
            print(f"step {step}: reward {sum(rewards) / len(rewards):.3f}, turns {turns:.1f}, kl {float(kl):.5f}")
    change = max((value - before[name]).abs().max().item() for name, value in model.named_parameters())
    print(f"largest change of a weight: {change:.6f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    arguments = vars(parser.parse_args())
    with tempfile.NamedTemporaryFile() as file:
        dist.init_process_group("gloo", init_method=f"file://{file.name}.group", rank=0, world_size=1)
        wandb.init(mode="disabled")
        asyncio.run(main(**arguments))
        dist.destroy_process_group()

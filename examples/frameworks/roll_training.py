"""Train the default model on GuessTheNumber with ROLL's environment managers, advantages and policy loss, on a CPU.

`EngineProxy` takes the place of the vLLM or SGLang workers that ROLL samples from. On GPUs, start ROLL's own agentic
pipeline with `custom_envs` instead; see docs/integrations.md.
"""

import argparse
import asyncio
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import ray
import torch
from dacite import from_dict
from roll.distributed.scheduler.protocol import DataProto
from roll.distributed.scheduler.rollout_scheduler import GroupQueueManager
from roll.distributed.strategy.strategy import InferenceStrategy
from roll.pipeline.agentic.agentic_actor_worker import ActorWorker
from roll.pipeline.agentic.agentic_config import AgenticConfig
from roll.pipeline.agentic.llm_proxy import BaseLLMProxy, register_llm_proxy
from roll.pipeline.agentic.utils import agentic_compute_advantage, compute_response_level_rewards
from roll.utils.functionals import compute_token_reward
from roll.utils.kl_controller import FixedKLController

from palestra.engines import LocalEngine, Sampling
from palestra.engines.default_model import default_model
from palestra.integrations.roll import PalestraEnvManager


class EngineProxy(BaseLLMProxy):
    """Model proxy that samples with a Palestra engine, which runs in the event loop of the main thread."""

    def generate(self, messages: list[dict[str, str]], lm_input: DataProto, generation_config: dict[str, Any]) -> Any:
        del messages  # the tokens are in lm_input
        sampling = Sampling(
            max_tokens=generation_config["max_new_tokens"],
            temperature=generation_config["temperature"],
            stop_ids=(self.tokenizer.eos_token_id,),
        )
        engine, loop = self.generate_scheduler
        prompt = lm_input.batch["input_ids"][0].tolist()
        reply = asyncio.run_coroutine_threadsafe(engine.generate(prompt, sampling), loop).result()
        lm_input.batch["responses"] = torch.tensor([reply.ids])
        lm_input.batch["infer_logprobs"] = torch.tensor([reply.logprobs])
        return lm_input


register_llm_proxy("engine")(EngineProxy)


def load_config(env: str, tasks: int, group_size: int) -> AgenticConfig:
    """Return the configuration of ROLL's agentic pipeline."""
    entry = {
        "env_type": "palestra",
        "env_manager_cls": "palestra.integrations.roll.PalestraEnvManager",
        "env_config": {"env": env},
        "max_steps": 8,
        "max_tokens_per_step": 8,
        "agent_system_template": "Play well.",
        "agent_template": "{observation}",
    }
    manager = {"tags": ["game"], "num_env_groups": tasks, "num_groups_partition": [tasks], "group_size": group_size}
    folder = tempfile.mkdtemp()  # for ROLL's logs
    options = {
        "exp_name": "palestra",
        "output_dir": folder,
        "logging_dir": folder,
        "rollout_batch_size": tasks * group_size,
        "sequence_length": 1024,
        "adv_estimator": "grpo",
        "reward_normalization": {"grouping": "traj_group_id", "norm_mean_type": "group", "norm_std_type": "group"},
        "custom_envs": {"game": entry},
        "train_env_manager": {**manager, "llm_proxy": {"proxy_type": "engine"}},
        "val_env_manager": manager,
        "actor_infer": {"generating_args": {"max_new_tokens": 8, "temperature": 1.0}},
    }
    return from_dict(AgenticConfig, options)


class Rollouts:
    """ROLL's environment managers, each in a thread, and the queue that collects their episodes."""

    def __init__(self, config: AgenticConfig, tokenizer: Any, engine: LocalEngine) -> None:
        worker = config.train_env_manager
        self.queue = GroupQueueManager.remote(config=config, env_manager_config=worker, mode="train")
        self.managers = [
            PalestraEnvManager(
                worker_config=worker,
                pipeline_config=config,
                env_config=env_config,
                tokenizer=tokenizer,
                generate_scheduler=(engine, asyncio.get_running_loop()),
                output_queue=self.queue,
                thread_lock=threading.Lock(),
            )
            for env_config in worker.env_configs[0].values()
        ]
        self.size = config.rollout_batch_size
        self.pool = ThreadPoolExecutor(len(self.managers) + 1)
        self.running: list[Future[None]] = []

    async def batch(self, step: int) -> DataProto:
        """Return the episodes of one step; raise the error of a manager that failed."""
        for manager in self.managers:
            manager.update_step(step)
        ray.get(self.queue.advance_step.remote(step))
        if not self.running:
            data = DataProto(meta_info={"seed": 0})
            self.running = [self.pool.submit(manager.run_rollout_loop, data) for manager in self.managers]
        request = self.queue.get_batch.remote(batch_size=self.size, current_step=step)
        episodes = asyncio.wrap_future(self.pool.submit(ray.get, request))
        done, _ = await asyncio.wait([episodes, *map(asyncio.wrap_future, self.running)], return_when="FIRST_COMPLETED")
        for future in done:
            future.result()
        return DataProto.concat(await episodes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for manager in self.managers:
            manager.stop()
        ray.get(self.queue.shutdown.remote())
        await asyncio.gather(*map(asyncio.wrap_future, self.running), return_exceptions=True)
        ray.kill(self.queue)
        self.pool.shutdown()


def policy_loss(config: AgenticConfig, batch: DataProto, logits: torch.Tensor) -> torch.Tensor:
    """Return the loss of ROLL's agentic actor."""
    worker = ActorWorker.__new__(ActorWorker)  # without ROLL's distributed strategy
    worker.pipeline_config = config
    worker.strategy = InferenceStrategy.__new__(InferenceStrategy)
    batch.meta_info["batch_num_tokens"] = {"response_mask": int(batch.batch["response_mask"][:, 1:].sum())}
    batch.meta_info["global_valid_samples"] = {"response_mask": len(batch)}
    loss, _ = worker.loss_func(batch, logits)
    return loss


async def main(env: str, steps: int, tasks: int, group_size: int, learning_rate: float) -> None:
    model, tokenizer = default_model("0.3M", seed=1)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    config = load_config(env, tasks, group_size)
    async with LocalEngine(model, tokenizer=tokenizer) as engine, Rollouts(config, tokenizer, engine) as rollouts:
        for step in range(steps):
            batch = await rollouts.batch(step)
            mask = batch.batch["response_mask"]
            async with engine.paused():
                inputs = {name: batch.batch[name] for name in ("input_ids", "attention_mask", "position_ids")}
                logits = model(**inputs).logits
                strategy = InferenceStrategy.__new__(InferenceStrategy)
                logprobs = strategy.op_compute_log_probs(logits, inputs["input_ids"], mask).detach()
                difference = (logprobs - batch.batch["infer_logprobs"]).abs().max().item()
                if difference > 1e-3:
                    raise SystemExit("the recorded tokens are not the ones that the model sampled")
                batch.batch["old_log_probs"] = batch.batch["ref_log_probs"] = logprobs
                batch.batch["train_infer_is_weight"] = torch.ones_like(logprobs)
                batch, _ = compute_response_level_rewards(batch, config)
                batch, _ = compute_token_reward(batch, config, FixedKLController(0.0))
                batch = agentic_compute_advantage(batch, config.gamma, config.lambd, config.adv_estimator)
                loss = policy_loss(config, batch, logits)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                await engine.publish(None, engine.version + 1)
            rewards = batch.non_tensor_batch["episode_scores"].astype(float)
            turns = sum(map(len, batch.non_tensor_batch["step_scores"])) / len(rewards)
            print(f"step {step}: reward {rewards.mean():.3f}, turns {turns:.1f}, difference {difference:.6f}")
    change = max((value - before[name]).abs().max().item() for name, value in model.named_parameters())
    print(f"largest change of a weight: {change:.6f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    asyncio.run(main(**vars(parser.parse_args())))

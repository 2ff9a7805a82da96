"""Create the engine that a trainer samples from, publish weights to it, and check them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import Any

import torch

from palestra.engines.base import PolicyEngine
from palestra.engines.registry import get_engine
from palestra.engines.vllm.commands import parse_gpus
from palestra.engines.vllm.ray_host import ray_hosts
from palestra.errors import BadValue
from palestra.rollout.samples import TrainingSample
from palestra.training import adapters
from palestra.training.config import TrainConfig
from palestra.training.distributed import DistributedContext
from palestra.training.learner import Learner
from palestra.training.policy import Policy
from palestra.training.ray_resources import server_options

PROBES = 4  # number of token sequences that are scored after every update of an engine with its own weights
PROBE_LENGTH = 48


def make_engine(
    config: TrainConfig, policy: Policy, distributed: DistributedContext, *, lockstep: bool
) -> PolicyEngine:
    """Create the engine named in the config for the policy's sampling weights."""
    sampling = config.sampling
    factory = get_engine(sampling.engine)
    trainable = not isinstance(factory, type) or issubclass(factory, PolicyEngine)
    options: dict[str, Any] = {"kv_cache_gb": sampling.kv_cache_gb} if sampling.kv_cache_gb else {}
    options |= {"servers": sampling.engine_servers} if sampling.engine_servers else {}
    options |= {"gpus": sampling.engine_gpus} if sampling.engine_gpus else {}
    options |= {"urls": sampling.engine_url} if sampling.engine_url else {}
    options |= sampling.engine_kwargs
    if config.ray.enabled and sampling.engine == "vllm" and not sampling.engine_url:
        options |= server_options(config) | {"hosts": ray_hosts(sampling.engine_servers)}
    elif sampling.engine == "vllm" and not options.get("urls"):
        learners = _learner_gpus(policy, distributed)
        options["gpus"] = server_gpus(options.get("gpus", ""), learners, colocate=bool(options.get("colocate")))

    def make(**more: Any) -> Any:
        return factory(
            policy.sampler,
            tokenizer=policy.tokenizer,
            max_running=sampling.concurrency,
            lockstep=lockstep and policy.device.type == "cpu" and not sampling.rollout_workers,
            **(options | more),
        )

    if trainable:
        if getattr(factory, "starts_empty", False):
            engine = _make_remote(make, config, distributed)
        else:
            engine = make()
        if isinstance(engine, PolicyEngine):
            return engine
    raise BadValue(
        f"the engine {sampling.engine!r} must be a PolicyEngine, with publish(), pause() and resume(), for training"
    )


def server_gpus(gpus: str | Sequence[str], learners: Sequence[int], *, colocate: bool) -> tuple[str, ...]:
    """Return the numbers of the vLLM servers' GPUs: with `colocate` by default the learners' GPUs, otherwise others."""
    chosen = parse_gpus(gpus)
    used = [str(number) for number in learners]
    if colocate and not used:
        raise BadValue("colocate runs vLLM servers on the learner's GPU, but the learner uses the CPU")
    shared = sorted(set(chosen) & set(used))
    if shared and not colocate:
        raise BadValue(
            f"engine_gpus contains {', '.join(shared)}, which the learner uses; choose other GPUs, or share it with "
            """--engine-kwargs '{"colocate": true}'"""
        )
    return chosen or (tuple(used) if colocate else ())


def _learner_gpus(policy: Policy, distributed: DistributedContext) -> list[int]:
    """Return the GPU numbers of the processes on the main process's machine."""
    numbers = distributed.gather(policy.device.index if policy.device.type == "cuda" else None)
    on_machine = int(os.environ.get("LOCAL_WORLD_SIZE", distributed.size))  # ranks start on the main machine
    return [number for number in numbers[:on_machine] if number is not None]


def _make_remote(make: Any, config: TrainConfig, distributed: DistributedContext) -> Any:
    """Create an engine with servers: the main process starts and updates them, and all processes sample from them."""
    folder = config.folder / "engine"
    engines = []

    def make_main() -> list[str]:
        engines.append(make(folder=folder))
        urls: list[str] = engines[0].urls
        return urls

    urls = distributed.on_main(make_main)
    return engines[0] if engines else make(folder=folder, urls=urls, publisher=False)


async def publish(engine: PolicyEngine, learner: Learner) -> dict[str, float]:
    """Make the engine use the learner's weights, and check an engine that has its own copy of them; return metrics."""
    policy = learner.policy
    async with engine.paused():
        if engine.shares_weights:
            policy.update_sampler()
            await engine.publish(None, engine.version + 1)
            return {}
        if engine.supports_lora and policy.has_lora:
            weights = adapters.adapter_state(policy.model)
        elif engine.starts_empty and not learner.distributed.is_main:
            weights = {}
            policy.gather_weights()
        else:
            weights = policy.weights()
        await engine.publish(weights, engine.version + 1)
        metrics = await engine.verify(learner_probes(learner), weights) if engine.starts_empty else {}
        learner.distributed.gather(None)  # no process samples before the engine has the weights
    return metrics


@torch.no_grad()
def learner_probes(learner: Learner) -> list[tuple[list[int], list[float]]]:
    """Return random token sequences with the learner's log-probabilities at temperature 1."""
    policy = learner.policy
    rng = Random(learner.config.run.seed)
    size = min(len(policy.tokenizer), policy.model.config.get_text_config().vocab_size)
    sequences = [[rng.randrange(size) for _ in range(PROBE_LENGTH)] for _ in range(PROBES)]
    rest = PROBE_LENGTH - 1
    samples = [
        TrainingSample(
            ids=ids, mask=[0] + [1] * rest, logprobs=[0.0] * PROBE_LENGTH, turn_index=[-1] + [0] * rest, episode=index
        )
        for index, ids in enumerate(sequences)
    ]
    temperature, policy.temperature = policy.temperature, 1.0
    try:
        scored = {
            sample.episode: logprobs
            for batch in learner.micro_batches(samples)
            for sample, logprobs in zip(batch.samples, batch.read(policy.score(batch).logprobs), strict=True)
        }
    finally:
        policy.temperature = temperature
    return [(ids, scored[index]) for index, ids in enumerate(sequences)]

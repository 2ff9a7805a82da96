"""Estimate a training run's memory and time from its settings, without training: `palestra train --dry-run`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from palestra.algorithms.base import PolicyGradient
from palestra.engines.default_model import count_parameters, default_model, default_tokenizer
from palestra.engines.local.scheduler_selection import default_cache_bytes
from palestra.engines.model_folders import model_folder
from palestra.errors import BadValue
from palestra.machine import main_memory
from palestra.optional import require
from palestra.registry import EnvFactory
from palestra.training import packed_decoder
from palestra.training.config import TrainConfig
from palestra.training.fused_ops import MIN_COMPILED_PARAMETERS
from palestra.training.memory import stored_per_token
from palestra.training.policy import weight_dtype
from palestra.training.update_memory import Parts, UpdateSizes, update_memory
from palestra.types import text_of

EFFICIENCY = 0.3  # assumed speed of training and sampling, relative to a large matrix product
PROBE_SECONDS = 0.2
USED_TOKENS = 0.5  # assumed fraction of the maximum number of tokens that episodes use
TURN_TOKENS = 24  # assumed number of tokens that the observation and the chat template add per turn
SCRIPTED_TOKENS = 12  # assumed number of tokens in a scripted player's action
LESS_MEMORY = "lower --token-budget, or add --gradient-checkpointing on, --lora-rank 16 or --offload-optimizer"


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Estimated memory (in bytes), tokens and time of a run."""

    parameters: int
    trainable: int
    dtype: str
    device: str
    learning: Parts  # during an update
    sampling: Parts  # during rollouts; empty if another process samples
    memory: int  # total memory of the GPU, or the main memory
    prompt_tokens: int
    turns: int
    sampled_tokens: int  # maximum per step
    trained_tokens: int  # maximum per step
    step_seconds: float
    warm_episodes: int  # number of episodes in the warm start
    warm_seconds: float

    def lines(self, steps: int) -> list[str]:
        """Return the estimate as lines of text."""
        phases = {"in an update": self.learning, "while sampling": self.sampling}
        trained = "all are trained" if self.trainable == self.parameters else f"{self.trainable:,} are trained"
        most = f"{self.sampled_tokens:,} sampled and {self.trained_tokens:,} trained tokens"
        times = f"{_duration(self.step_seconds)} per step"
        if steps:  # otherwise the number of steps depends on the data
            times = f"{times}, {_duration(steps * self.step_seconds)} for {steps} steps"
        if self.warm_episodes:
            times = f"{_duration(self.warm_seconds)} for the warm start ({self.warm_episodes:,} episodes), {times}"
        return [
            f"model: {self.parameters:,} parameters in {self.dtype} on {self.device}; {trained}",
            *(
                f"memory: about {_size(sum(parts.values()))} of {_size(self.memory)} {phase} ({_list(parts)})"
                for phase, parts in phases.items()
                if parts
            ),
            *([f"the memory is not enough for one process: {LESS_MEMORY}"] if self.needed_memory > self.memory else []),
            f"episodes: prompts of about {self.prompt_tokens:,} tokens, at most {self.turns} turns",
            f"tokens per step: at most {most}",
            f"time: roughly {times}, without environments and evaluations",
        ]

    @property
    def needed_memory(self) -> int:
        """Memory of the phase that needs more."""
        return max(sum(self.learning.values()), sum(self.sampling.values()))


def estimate(config: TrainConfig) -> Estimate:
    """Estimate the memory and time of a run with these settings."""
    device = config.run.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype_name = weight_dtype(config, device)
    dtype = getattr(torch, dtype_name)
    model, tokenizer = _empty_model(config, dtype)
    parameters = count_parameters(model)
    trainable = _adapter_size(model, config) if config.model.lora_rank else parameters
    config = config.with_max_tokens(tokenizer)

    prompt, turns = _episode(config, tokenizer)
    episodes = config.sampling.episodes
    sampled = episodes * turns * config.sampling.max_tokens
    length = prompt + turns * (config.sampling.max_tokens + TURN_TOKENS)
    trained = episodes * length * config.optimizer.epochs
    work = 2 * parameters * (sampled + episodes * length) + 6 * parameters * trained
    speed = EFFICIENCY * _speed(device, dtype)
    plays = config.algorithm.trainer in ("online", "evolution")  # the other algorithms have no warm start
    warm_episodes = config.warm_start.count(trained=config.model.trained) if plays else 0
    warm_work = _warm_start_work(config, warm_episodes, parameters, prompt, turns)
    device_memory = torch.cuda.mem_get_info(device)[1] if device.startswith("cuda") else None
    learning, sampling = run_memory(config, model, trainable, length, device_memory)
    return Estimate(
        parameters=parameters,
        trainable=trainable,
        dtype=dtype_name,
        device=device,
        learning=learning,
        sampling=sampling,
        memory=device_memory or main_memory(),
        prompt_tokens=prompt,
        turns=turns,
        sampled_tokens=sampled,
        trained_tokens=trained,
        step_seconds=USED_TOKENS * work / speed,
        warm_episodes=warm_episodes,
        warm_seconds=warm_work / speed,
    )


def _warm_start_work(config: TrainConfig, episodes: int, parameters: int, prompt: int, turns: int) -> float:
    """Return the number of floating-point operations in the warm start, in which the model may play some turns."""
    options = config.warm_start
    tokens = episodes * (prompt + USED_TOKENS * turns * (SCRIPTED_TOKENS + TURN_TOKENS))
    played = options.own_actions * (1 - 1 / options.rounds)
    return parameters * tokens * (6 * options.epochs + 2 * played)


def _empty_model(config: TrainConfig, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return a model without weights, of the configured shape, and its tokenizer."""
    if not config.model.trained:
        return default_model(config.model.name.partition(":")[2])[0], default_tokenizer()
    transformers = require("transformers", extra="train")
    source = model_folder(config.model.name)
    try:
        shape = transformers.AutoConfig.from_pretrained(source)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as err:
        raise BadValue(f"the model {config.model.name!r} could not be read: {str(err).partition(chr(10))[0]}") from err
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(shape, dtype=dtype), tokenizer


def _adapter_size(model: Any, config: TrainConfig) -> int:
    targets = {name.strip() for name in config.model.lora_targets.split(",") if name.strip()}
    linears = [
        module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and (name.rpartition(".")[2] in targets if targets else name != "lm_head")
    ]
    return sum(config.model.lora_rank * (linear.in_features + linear.out_features) for linear in linears)


def _episode(config: TrainConfig, tokenizer: Any) -> tuple[int, int]:
    """Return the length of the longest first prompt in tokens, and the maximum number of turns."""
    prompt = turns = 0
    horizon = next(reversed(config.env.schedule.stages), None)
    for name in config.env.weights:
        env = EnvFactory.of(name, kwargs=config.env.kwargs, wrappers=config.env.all_wrappers)()
        try:
            observation, info = env.reset(seed=config.run.seed)
            limit = info.get("max_turns") or getattr(env, "max_turns", None) or 1
        finally:
            env.close()
        prompt = max(prompt, len(tokenizer(text_of(observation))["input_ids"]) + TURN_TOKENS)
        turns = max(turns, min(limit, horizon or limit))
    return prompt, turns


def run_memory(
    config: TrainConfig, model: Any, trainable: int, length: int, gpu_memory: int | None
) -> tuple[Parts, Parts]:
    """Return the memory of an update and of rollouts with conversations of `length` tokens."""
    optimizer, sampling, size = config.optimizer, config.sampling, model.dtype.itemsize
    text = model.config.get_text_config()
    parameters = count_parameters(model)
    matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2) if optimizer.name == "muon" else 0
    packed = (
        gpu_memory is not None
        and optimizer.packing is not False
        and parameters >= MIN_COMPILED_PARAMETERS
        and packed_decoder.unsupported_reason(model) is None
    )
    learning = update_memory(
        UpdateSizes(
            parameters=parameters,
            trained=trainable,
            optimizer=8 * trainable - 4 * min(matrices, trainable),  # Muon keeps one moment per weight, AdamW two
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
            vocabulary=text.vocab_size,
            stored=stored_per_token(text, fused=packed),
            itemsize=size,
            lora=bool(config.model.lora_rank),
            packed=packed,
            backtracks=isinstance(config.algorithm, PolicyGradient) and config.algorithm.config.kl_backtrack > 0,
        ),
        gpu_memory=gpu_memory,
        conversation=length,
        token_budget=optimizer.token_budget,
        batch=sampling.episodes * length,
        recompute=config.model.gradient_checkpointing,
        offload=optimizer.offload and gpu_memory is not None,
    ).parts
    if sampling.engine != "local":
        return learning, {}
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    per_token = 2 * text.num_hidden_layers * text.num_key_value_heads * head * size
    rows = min(sampling.concurrency or sampling.episodes, sampling.episodes)
    kept = {name: learning[name] for name in ("weights", "float32 copies", "optimizer")}
    if sampling.asynchronous:  # the engine has its own copy of the weights and samples during updates
        kept["sampling copy"] = parameters * size
    limit = int(sampling.kv_cache_gb * 2**30)
    limit = limit or default_cache_bytes(None if gpu_memory is None else gpu_memory - sum(kept.values()))
    kept["KV cache"] = min(limit, per_token * length * rows)
    return ({**learning, **kept}, {}) if sampling.asynchronous else (learning, kept)


def _speed(device: str, dtype: torch.dtype) -> float:
    """Measure the floating-point operations per second of a matrix product."""
    side = 4096 if device.startswith("cuda") else 512
    a = torch.randn(side, side, device=device, dtype=dtype)
    a @ a
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < PROBE_SECONDS:
        a @ a
        count += 1
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
    return 2 * side**3 * count / (time.perf_counter() - start)


def _list(parts: Parts) -> str:
    return ", ".join(f"{name} {_size(count)}" for name, count in parts.items() if count)


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.3g} {unit}"


def _duration(seconds: float) -> str:
    value, unit = (seconds, "s") if seconds < 90 else (seconds / 60, "min") if seconds < 5400 else (seconds / 3600, "h")
    return f"{value:.2g} {unit}" if value < 10 else f"{value:,.0f} {unit}"

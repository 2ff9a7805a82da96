"""Estimate a training run's memory and time from its settings, without training: `palestra train --dry-run`."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from palestra.algorithms.base import PolicyGradient
from palestra.engines.default_model import count_parameters, default_model, default_tokenizer
from palestra.engines.local.loading import context_length
from palestra.engines.local.scheduler_selection import default_cache_bytes
from palestra.engines.model_folders import model_folder
from palestra.errors import BadValue
from palestra.machine import main_memory
from palestra.optional import require
from palestra.training import data, packed_decoder
from palestra.training.config import TrainConfig
from palestra.training.cpu_threads import cpu_threads, threads
from palestra.training.episode_lengths import EpisodeLengths, played_lengths, stored_lengths
from palestra.training.fused_ops import MIN_COMPILED_PARAMETERS
from palestra.training.memory import stored_per_token
from palestra.training.policy import weight_dtype
from palestra.training.update_memory import Parts, UpdateSizes, update_memory

EFFICIENCY = 0.3  # assumed speed of training and sampling, relative to a large matrix product
PROBE_SECONDS = 0.2
USED = 0.5  # assumed fraction of the maximum reply that a pretrained model uses
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
    lengths: EpisodeLengths
    sampled_tokens: int  # maximum per step
    trained_tokens: int  # maximum per step
    steps: int
    step_seconds: float
    warm_episodes: int  # number of episodes in the warm start
    warm_seconds: float

    def lines(self) -> list[str]:
        """Return the estimate as lines of text."""
        phases = {"in an update": self.learning, "while sampling": self.sampling}
        trained = "all are trained" if self.trainable == self.parameters else f"{self.trainable:,} are trained"
        sampled = f"{self.sampled_tokens:,} sampled and " if self.sampled_tokens else ""
        all_steps = f"{_duration(self.steps * self.step_seconds)} for {self.steps:,} steps"
        times = f"{_duration(self.step_seconds)} per step, {all_steps}"
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
            f"episodes: prompts of up to {self.lengths.prompt:,} tokens, at most {self.lengths.limit} turns",
            *([f"measured: {self._measured()}"] if self.lengths.source else []),
            f"tokens per step: at most {sampled}{self.trained_tokens:,} trained tokens",
            f"time: roughly {times}, without environments and evaluations",
        ]

    def _measured(self) -> str:
        """Describe the episodes on which the estimate is based."""
        one = self.lengths
        env = _duration(one.env_seconds) if one.env_seconds >= 0.01 else "less than 0.01 s"
        means = f"{one.turns:.3g} turns, {one.tokens:,.0f} tokens and {env} in the environment"
        return f"{one.source} had {means} on average"

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
    window = context_length(model, None)
    work = (_rollouts if config.algorithm.needs_env else _examples)(config, tokenizer, window)
    config = work.config
    with threads(cpu_threads(config.run.threads, parameters, device)):
        speed = EFFICIENCY * _speed(device, dtype)
    device_memory = torch.cuda.mem_get_info(device)[1] if device.startswith("cuda") else None
    learning, sampling = run_memory(config, model, trainable, work.longest, device_memory, conversations=work.trained)
    return Estimate(
        parameters=parameters,
        trainable=trainable,
        dtype=dtype_name,
        device=device,
        learning=learning,
        sampling=sampling if work.played else {},
        memory=device_memory or main_memory(),
        lengths=work.lengths,
        sampled_tokens=work.played * work.lengths.limit * config.sampling.max_tokens,
        trained_tokens=work.trained * work.epochs * work.longest,
        steps=config.run.steps,
        step_seconds=work.passes * _pass(model, parameters, work.episode) / speed,
        warm_episodes=work.warm_episodes,
        warm_seconds=_warm_start_passes(config, work.warm_episodes) * _pass(model, parameters, work.lengths) / speed,
    )


@dataclass(frozen=True, kw_only=True)
class _Work:
    """Numbers of episodes, samples and passes in a step and in the warm start."""

    config: TrainConfig  # with the reply length and the number of steps
    lengths: EpisodeLengths  # of the measured episodes
    episode: EpisodeLengths  # of those in a step
    longest: int  # tokens in the longest training sample
    passes: int  # forward passes over an episode in a step; a backward pass counts as two
    played: int = 0  # episodes in a step
    trained: int  # training samples in a step
    epochs: int = 1  # passes over them in a step
    warm_episodes: int = 0


def _rollouts(config: TrainConfig, tokenizer: Any, window: int | None) -> _Work:
    """Return the work of a run that plays episodes."""
    trained = config.model.trained
    cloned = getattr(config.algorithm.config, "data", ())  # AgentEvol imitates its data instead of a scripted player
    warm_episodes = 0 if cloned else config.warm_start.count(trained=trained)
    limit_is_set = config.sampling.max_tokens > 0
    config = config.with_max_tokens(tokenizer)
    lengths = played_lengths(config, tokenizer, required=warm_episodes > 0)
    if warm_episodes and not trained and not limit_is_set:  # then the warm start's longest reply is the limit
        config = config.with_reply_length(lengths.longest_reply)
    reply, episodes, epochs = config.sampling.max_tokens, config.sampling.episodes, config.optimizer.epochs
    longest = lengths.longest(reply)
    return _Work(
        config=config,
        lengths=lengths,
        episode=lengths if warm_episodes and not trained else lengths.with_reply(USED * reply),
        longest=min(longest, window or longest),
        passes=episodes * (1 + 3 * epochs),
        played=episodes,
        trained=episodes * (lengths.limit if lengths.shortened else 1),
        epochs=epochs,
        warm_episodes=warm_episodes,
    )


def _examples(config: TrainConfig, tokenizer: Any, window: int | None) -> _Work:
    """Return the work of a run on stored trajectories."""
    algorithm: Any = config.algorithm
    examples: list[data.Example] = algorithm.select(data.load(algorithm.config.data).trajectories)
    lengths = stored_lengths(config, examples, tokenizer, window)
    pairs = config.algorithm.trainer == "preference"
    trained = (2 if pairs else 1) * min(algorithm.config.batch, len(examples))
    return _Work(
        config=data.with_planned_steps(config.with_max_tokens(tokenizer), len(examples)),
        lengths=lengths,
        episode=lengths,
        longest=lengths.sample,
        passes=trained * (4 if pairs else 3),  # the reference model also scores pairs
        trained=trained,
    )


def _pass(model: Any, parameters: int, lengths: EpisodeLengths) -> float:
    """Return the number of floating-point operations of the forward pass for an episode; a backward pass has two."""
    text = model.config.get_text_config()
    attention: int = 4 * text.num_hidden_layers * text.num_attention_heads * _head_size(text)
    return 2 * parameters * lengths.tokens + attention * lengths.pairs


def _head_size(text: Any) -> int:
    return int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)


def _warm_start_passes(config: TrainConfig, episodes: int) -> float:
    """Return the number of forward passes in the warm start, in which the model may play some turns."""
    options = config.warm_start
    played = options.own_actions * (1 - 1 / options.rounds)
    return episodes * (3 * options.epochs + played)


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


def run_memory(
    config: TrainConfig, model: Any, trainable: int, length: int, gpu_memory: int | None, *, conversations: int = 0
) -> tuple[Parts, Parts]:
    """Return the memory of an update and of rollouts with conversations of `length` tokens.

    `conversations` is the number of them in an update (default: the number of episodes in a step).
    """
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
        batch=(conversations or sampling.episodes) * length,
        recompute=config.model.gradient_checkpointing,
        offload=optimizer.offload and gpu_memory is not None,
    ).parts
    others = _other_models(config, model, optimizer.offload and gpu_memory is not None)
    learning.update(others)
    if sampling.engine != "local":
        return learning, {}
    per_token = 2 * text.num_hidden_layers * text.num_key_value_heads * _head_size(text) * size
    rows = min(sampling.concurrency or sampling.episodes, sampling.episodes)
    kept = {name: learning[name] for name in ("weights", "float32 copies", "optimizer", *others)}
    if sampling.asynchronous:  # the engine has its own copy of the weights and samples during updates
        kept["sampling copy"] = parameters * size
    limit = int(sampling.kv_cache_gb * 2**30)
    limit = limit or default_cache_bytes(None if gpu_memory is None else gpu_memory - sum(kept.values()))
    kept["KV cache"] = min(limit, per_token * length * rows)
    return ({**learning, **kept}, {}) if sampling.asynchronous else (learning, kept)


def _other_models(config: TrainConfig, model: Any, offload: bool) -> Parts:
    """Return the memory of the models besides the policy."""
    algorithm, itemsize = config.algorithm, model.dtype.itemsize
    models: Parts = {}
    if config.needs_reference:
        models["reference model"] = itemsize * count_parameters(model)
    if not isinstance(algorithm, PolicyGradient):
        return models
    if algorithm.needs_critic and algorithm.critic == "model":  # weights, gradients, AdamW's state and float32 copies
        body = count_parameters(getattr(model, model.base_model_prefix))
        models["critic"] = body * (itemsize + (itemsize if offload else 12 + (4 if itemsize < 4 else 0)))
    if algorithm.teacher and "://" not in algorithm.teacher:
        teacher = replace(config, model=replace(config.model, name=algorithm.teacher))
        models["teacher"] = itemsize * count_parameters(_empty_model(teacher, model.dtype)[0])
    return models


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

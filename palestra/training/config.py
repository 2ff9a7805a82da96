"""Typed configuration of a training run, in sections. Imports no torch.

Each section is a table of a TOML recipe; each field is a flag of `palestra train` and a keyword argument of
`palestra.train`. `palestra.training.recipe` builds a config from flags, keyword arguments and recipes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from palestra.algorithms.base import Algorithm
from palestra.algorithms.options import check_options, flat_name, option
from palestra.algorithms.rebn import ReBN
from palestra.errors import BadValue
from palestra.training.horizon import HorizonSchedule


@dataclass(frozen=True, kw_only=True)
class Section:
    """Base class of config sections. Options are validated on construction."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, kw_only=True)
class EnvConfig(Section):
    """`[env]`: the environments to train on and how they run."""

    name: tuple[str, ...] = option(
        (), "Environment to train on: an id, module:Class or URL, with an optional weight (repeatable).", flag="env"
    )
    kwargs: dict[str, Any] = option(
        None, 'Keyword arguments of every environment, as JSON: {"max_turns": 12}.', flag="env_kwargs"
    )
    tools: tuple[str, ...] = option((), "Tools the agent may call, for example python or search.")
    max_tool_calls: int = option(0, "Maximum number of tool calls per episode; 0 means no limit.", at_least=0)
    wrappers: tuple[Any, ...] = option(
        (), "Wrappers around every environment, innermost first: names or module:Class, for example custom rewards."
    )
    backend: Literal["inline", "thread", "process", "ray"] = option(
        "inline",
        "Where environments run: in the event loop (inline), or in threads, processes or Ray actors if they are slow.",
        flag="env_backend",
        choices=("inline", "thread", "process", "ray"),
    )
    workers: int = option(
        0, "Number of environment workers of the backend; 0 uses one per CPU core.", flag="env_workers", at_least=0
    )
    step_timeout: float = option(
        0.0, "Seconds after which a step of an environment fails; 0 disables the limit.", at_least=0
    )
    reset_timeout: float = option(
        0.0, "Seconds after which a reset of an environment fails; 0 disables the limit.", at_least=0
    )
    imports: tuple[str, ...] = option(
        (), "Module to import first, which registers environments or algorithms (repeatable).", flag="import"
    )
    curriculum: float = option(
        0.0,
        "Success rate that unlocks the next --env, listed from easy to hard; 0 trains on all from the start.",
        at_least=0,
        at_most=1,
    )
    horizon: str = option(
        "none", "Maximum turns per episode: a number, stages such as 5,10,15@100 (every 100 steps), or none."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "kwargs", self.kwargs or {})
        super().__post_init__()
        HorizonSchedule.parse(self.horizon)
        _ = self.weights
        if self.max_tool_calls and not self.tools:
            raise BadValue("max_tool_calls needs tools: --tools python --max-tool-calls 5")

    @property
    def weights(self) -> dict[str, float]:
        """Sampling weight of each environment."""
        return dict(parse_weight(text) for text in self.name)

    @property
    def schedule(self) -> HorizonSchedule:
        return HorizonSchedule.parse(self.horizon)

    @property
    def all_wrappers(self) -> tuple[Any, ...]:
        """Wrappers applied to every environment, innermost first: the tools, then `wrappers`."""
        if not self.tools:
            return self.wrappers
        return ("Tools", {"tools": list(self.tools), "max_calls": self.max_tool_calls or None}), *self.wrappers


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """`[model]`: the model to train."""

    name: str = option(
        "default:0.1M",
        "Model to train: a folder, a Hugging Face id, a run folder, or default:SIZE for a small untrained one.",
        flag="model",
    )
    dtype: Literal["float32", "bfloat16"] = option(
        "float32",
        "Data type of the weights; bfloat16 halves memory on GPUs (the optimizer keeps float32 copies).",
        choices=("float32", "bfloat16"),
    )
    lora_rank: int = option(0, "Train LoRA adapters of this rank instead of all weights; 0 disables LoRA.", at_least=0)
    lora_alpha: float = option(0.0, "LoRA scaling alpha; 0 means twice the rank.", at_least=0)
    lora_targets: str = option("", "Comma-separated layers to adapt (q_proj,v_proj); empty adapts all linear layers.")
    gradient_checkpointing: Literal["auto", "on", "off"] = option(
        "auto",
        "Recompute activations in the backward pass to save memory: on, off, or auto (only for large micro-batches).",
        choices=("auto", "on", "off"),
    )

    @property
    def trained(self) -> bool:
        """True if the model is already trained, which is assumed of every model except default:SIZE."""
        return not self.name.startswith("default:")


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(Section):
    """`[sampling]`: how episodes are played."""

    episodes: int = option(256, "Episodes per training step.", untrained=512, at_least=1)
    group_size: int = option(8, "Episodes per task; the episodes of a group share a seed.", untrained=1, at_least=1)
    concurrency: int = option(
        256, "Maximum number of concurrent episodes; lower it if memory runs out.", untrained=512, at_least=1
    )
    max_tokens: int = option(512, "Maximum tokens per reply.", untrained=16, at_least=1)
    temperature: float = option(1.0, "Sampling temperature during training and evaluation.", at_least=0)
    top_p: float = option(
        1.0, "Nucleus sampling: sample from the most likely tokens with this total probability.", above=0, at_most=1
    )
    system: str = option("", "System prompt of every conversation.")
    asynchronous: bool = option(
        False, "Collect episodes while the learner updates; faster if episodes take long or differ in length."
    )
    staleness: int = option(
        4, "Maximum age of a sample in training steps when it is learned from (asynchronous only).", at_least=0
    )
    retries: int = option(2, "Further attempts at an episode whose environment or engine failed.", at_least=0)
    engine: str = option("local", "Engine that samples the replies: local, or the name of a registered engine.")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Section):
    """`[optimizer]`: how the weights are updated."""

    name: Literal["adamw", "muon"] = option(
        "adamw",
        "Optimizer: adamw, or muon for weight matrices with adamw for all other parameters.",
        flag="optimizer",
        untrained="muon",
        choices=("adamw", "muon"),
    )
    lr: float = option(1e-6, "Peak learning rate.", untrained=5e-3, at_least=0)
    lr_warmup: int = option(8, "Steps of linear learning-rate warm-up.", at_least=0)
    lr_final: float = option(0.2, "Learning rate at the last step as a fraction of the peak.", at_least=0)
    weight_decay: float = option(0.0, "Weight decay of AdamW.", at_least=0)
    max_grad_norm: float = option(1.0, "Clip gradients to this norm.", untrained=0.3, above=0)
    epochs: int = option(1, "Passes over the samples of a step (sft, dpo, agentevol: over the data).", at_least=1)
    minibatches: int = option(1, "Updates per pass over the samples of a step.", untrained=8, at_least=1)
    token_budget: int = option(
        16384, "Maximum tokens per micro-batch, including padding; lower it if memory runs out.", at_least=1
    )
    packing: bool = option(False, "Pack several short samples into one row instead of padding; for plain attention.")


@dataclass(frozen=True, kw_only=True)
class WarmStartConfig(Section):
    """`[warm_start]`: supervised training of an untrained model before RL."""

    episodes: int = option(
        -1,
        "Episodes of a scripted player to clone before RL; -1 means 3000 for an untrained model and 0 otherwise.",
        flag="warm_start",
        at_least=-1,
    )
    epochs: int = option(3, "Passes over the warm-start episodes.", flag="warm_epochs", at_least=1)
    batch: int = option(32, "Episodes per warm-start update.", flag="warm_batch", at_least=1)
    lr: float = option(1.2e-2, "Peak learning rate of the warm start.", flag="warm_lr", at_least=0)
    observations: bool = option(
        True, "Train on observations too, so that the model learns to read them.", flag="warm_observations"
    )
    player: Literal["random", "expert"] = option(
        "random",
        "Player to clone: random teaches only the action format, expert also the strategy.",
        flag="warm_player",
        choices=("random", "expert"),
    )


@dataclass(frozen=True, kw_only=True)
class EvalConfig(Section):
    """`[eval]`: evaluation on held-out seeds during training."""

    every: int = option(
        10, "Steps between evaluations; 0 evaluates only at the start and the end.", flag="eval_every", at_least=0
    )
    episodes: int = option(256, "Episodes per evaluation.", flag="eval_episodes", at_least=1)
    env: tuple[str, ...] = option(
        (), "Environment to evaluate on instead of the training environments (repeatable).", flag="eval_env"
    )
    kwargs: dict[str, Any] = option(
        None, "Keyword arguments of the evaluation environments, as JSON.", flag="eval_env_kwargs"
    )
    seed: int = option(900_000, "Root of the held-out seeds.", flag="eval_seed")
    target: float = option(
        0.0,
        "Stop once the success rate on held-out seeds reaches this; 0 runs all steps.",
        at_least=0,
        at_most=1,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "kwargs", self.kwargs or {})
        super().__post_init__()
        if self.kwargs and not self.env:
            raise BadValue("eval_env_kwargs needs eval_env: --eval-env ID --eval-env-kwargs JSON")


@dataclass(frozen=True, kw_only=True)
class RunConfig(Section):
    """`[run]`: length, output folder and machine settings."""

    out: str = option("", "Folder of the run; the default is runs/ENV-ALGORITHM-SEED.")
    seed: int = option(0, "Seed of everything random: tasks, sampling, minibatches and initial weights.")
    steps: int = option(
        80,
        "Training steps; for sft and dpo, updates (0 means as many as --epochs passes over the data need).",
        at_least=0,
    )
    save_every: int = option(10, "Steps between checkpoints.", at_least=1)
    keep: int = option(2, "Number of latest checkpoints to keep; the best model is kept separately.", at_least=0)
    store: bool = option(True, "Store the trajectories of every step in the folder `trajectories` of the run.")
    device: str = option("auto", "Device of the model: cpu, cuda, or auto.")
    threads: int = option(
        0, "Threads of torch on the CPU; 0 means one for a small model and torch's default otherwise.", at_least=0
    )
    tensorboard: bool = option(False, "Also write TensorBoard events.")
    wandb: bool = option(False, "Also log to Weights & Biases; offline unless you are logged in.")


SECTIONS: Mapping[str, type[Section]] = {
    "env": EnvConfig,
    "model": ModelConfig,
    "sampling": SamplingConfig,
    "optimizer": OptimizerConfig,
    "warm_start": WarmStartConfig,
    "eval": EvalConfig,
    "run": RunConfig,
}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The resolved configuration of a training run: one object per section, and the algorithm with its own config."""

    env: EnvConfig = field(default_factory=EnvConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    algorithm: Algorithm[Any] = field(default_factory=ReBN)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        self._resolve_defaults()
        algorithm, sampling = self.algorithm, self.sampling
        if algorithm.needs_env and not self.env.name:
            raise BadValue("name at least one environment: --env game:GuessTheNumber-v0-easy")
        if algorithm.needs_data and not algorithm.config.data:
            raise BadValue(f"{algorithm.name} learns from stored trajectories: --data runs/a/trajectories")
        if algorithm.needs_env and self.run.steps < 1:
            raise BadValue(f"steps must be at least 1, got {self.run.steps}")
        if sampling.episodes % sampling.group_size:
            raise BadValue(f"episodes ({sampling.episodes}) must be a multiple of group_size ({sampling.group_size})")
        if algorithm.needs_groups and sampling.group_size < 2:
            raise BadValue(f"{algorithm.name} compares the episodes of a group: group_size must be at least 2")
        if sampling.asynchronous and algorithm.trainer != "online":
            raise BadValue(f"{algorithm.name} has no asynchronous trainer; leave out --asynchronous")
        if algorithm.trainer == "evolution" and algorithm.config.rounds != 1 and not self.run.store:
            raise BadValue("evolve_rounds other than 1 reads the stored episodes of earlier rounds: leave --store on")

    def _resolve_defaults(self) -> None:
        """Set the options whose default depends on the algorithm and on whether the model is trained."""
        trained = self.model.trained
        for name in SECTIONS:
            section = getattr(self, name)
            values = auto_values(section, self.algorithm, trained=trained)
            if values:
                object.__setattr__(self, name, replace(section, **values))
        values = auto_values(self.algorithm.config, self.algorithm, trained=trained)
        if values:
            object.__setattr__(self, "algorithm", type(self.algorithm)(replace(self.algorithm.config, **values)))

    @property
    def eval_envs(self) -> list[str]:
        """Names of the environments to evaluate on."""
        return list(self.eval.env) or list(self.env.weights)

    @property
    def eval_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of the environments to evaluate on."""
        return self.eval.kwargs if self.eval.env else self.env.kwargs

    @property
    def folder(self) -> Path:
        """Output folder of the run."""
        if self.run.out:
            return Path(self.run.out)
        envs = "+".join(name.partition(":")[2] or name for name in self.env.weights)
        parts = (re.sub(r"[^\w.+-]+", "_", envs).strip("_"), self.algorithm.name, str(self.run.seed))
        return Path("runs") / "-".join(part for part in parts if part)

    def to_dict(self) -> dict[str, Any]:
        """Return the config as a JSON-compatible dict with one table per section."""
        tables: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "algorithm":
                tables["algorithm"] = {"name": value.name, **asdict(value.config)}
            else:
                tables[item.name] = asdict(value)
        tables["env"]["wrappers"] = tuple(qualified_name(wrapper) for wrapper in self.env.wrappers)
        return tables

    def with_steps(self, steps: int) -> TrainConfig:
        """Return a copy of the config with a different number of steps."""
        return replace(self, run=replace(self.run, steps=steps))


def auto_values(config: Any, algorithm: Algorithm[Any], *, trained: bool) -> dict[str, Any]:
    """Return values for the unset options whose default depends on the model."""
    return {
        item.name: auto_value(item.metadata["auto"], flat_name(item), algorithm.defaults, trained=trained)
        for item in fields(config)
        if item.metadata.get("auto") and getattr(config, item.name) is None
    }


def auto_value(pair: tuple[Any, Any], name: str, defaults: Mapping[str, Any], *, trained: bool) -> Any:
    """Return the default value of an option for an untrained or a trained model."""
    value = defaults.get(name, pair)
    return value[trained] if isinstance(value, tuple) else value


def parse_weight(text: str) -> tuple[str, float]:
    """Split NAME[=WEIGHT] into the name and the weight (default 1).

    The `=` of a URL query parameter does not separate a weight: `http://host/ENV?a=5` has the default weight, and
    `http://host/ENV?a=5=2` has the weight 2.
    """
    name, equals, weight = text.rpartition("=")
    if not equals or ("?" in text and re.split(r"[?&]", text)[-1].count("=") < 2):
        return text, 1.0
    try:
        number = float(weight)
    except ValueError as err:
        raise BadValue(f"--env takes NAME or NAME=WEIGHT with a number as weight, got {text!r}") from err
    if not number > 0:
        raise BadValue(f"the weight of an environment must be greater than 0, got {text!r}")
    return name, number


def qualified_name(value: str | Callable[..., Any]) -> str:
    """Return a string unchanged and the module:name of a class or function."""
    if isinstance(value, str):
        return value
    return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', type(value).__qualname__)}"

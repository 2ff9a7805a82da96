"""Sections of the training config: one dataclass per table of a TOML recipe. Does not import torch.

Each field is a flag of `palestra train` and a keyword argument of `palestra.train`. `palestra.training.config` combines
the sections and checks the settings that concern several of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from palestra.agents.settings import AgentSettings
from palestra.errors import BadValue
from palestra.options import BySize, option
from palestra.training.config_values import parse_weight
from palestra.training.horizon import HorizonSchedule
from palestra.training.ray_section import RayConfig
from palestra.training.warm_start_section import Section, WarmStartConfig


@dataclass(frozen=True, kw_only=True)
class EnvConfig(Section):
    """`[env]` section: the environments to train on and how they are run."""

    name: tuple[str, ...] = option(
        (),
        "Environment to train on: an id, module:Class or a URL, optionally followed by =WEIGHT to set how "
        "often it is sampled; repeatable.",
        flag="env",
    )
    kwargs: dict[str, Any] = option(
        None,
        "Keyword arguments for every environment as a JSON object, for example '{\"max_turns\": 12}'.",
        flag="env_kwargs",
    )
    tools: tuple[str, ...] = option((), "Tools that the agent may call, for example python or search (default: none).")
    max_tool_calls: int = option(0, "Maximum number of tool calls per episode; 0 means no limit.", at_least=0)
    wrappers: tuple[Any, ...] = option(
        (),
        "Wrappers to apply to every environment, innermost first: registered names or module:Class, for "
        "example to customize rewards.",
    )
    backend: Literal["inline", "thread", "process", "ray"] = option(
        "inline",
        "Backend that runs the environments: inline (in the trainer's event loop), thread, process or "
        "ray; use 'process' for environments that need a lot of CPU time.",
        flag="env_backend",
        choices=("inline", "thread", "process", "ray"),
    )
    workers: int = option(
        0,
        "Number of threads, processes or Ray actors that run environments; 0 uses one per CPU core.",
        flag="env_workers",
        at_least=0,
    )
    step_timeout: float = option(
        0.0,
        "Maximum number of seconds per environment step; if exceeded, the episode fails; 0 means no limit.",
        at_least=0,
    )
    reset_timeout: float = option(
        0.0,
        "Maximum number of seconds per environment reset; if exceeded, the episode fails; 0 means no limit.",
        at_least=0,
    )
    imports: tuple[str, ...] = option(
        (),
        "Python module to import before training, for example one that registers environments or "
        "algorithms; repeatable.",
        flag="import",
    )
    curriculum: float = option(
        0.0,
        "Success rate at which training adds the next environment, with the --env options ordered from "
        "easy to hard; 0 trains on all of them from the start.",
        at_least=0,
        at_most=1,
    )
    horizon: str = option(
        "none",
        "Maximum number of turns per episode: a number; a schedule such as 5,10,15@100 (next value every 100 steps) or "
        "5@50,10@200,15 (5 for 50 steps, 10 for the next 200, then 15); or none to use the environment's limit.",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "kwargs", self.kwargs or {})
        super().__post_init__()
        HorizonSchedule.parse(self.horizon)
        _ = self.weights
        if self.max_tool_calls and not self.tools:
            raise BadValue("max_tool_calls requires tools, for example --tools python --max-tool-calls 5")

    @property
    def weights(self) -> dict[str, float]:
        """Sampling weight for each environment."""
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
    """`[model]` section: the model to train."""

    name: str = option(
        "default:0.1M",
        "Model to train: a local folder, a Hugging Face id, the folder of a training run, or default:SIZE "
        "for a small untrained model.",
        flag="model",
    )
    dtype: Literal["auto", "float32", "bfloat16"] = option(
        "auto",
        "Data type of the model weights: float32, bfloat16 (while the optimizer keeps float32 copies), or auto, which "
        "is bfloat16 for a pretrained model on a GPU and float32 otherwise.",
        choices=("auto", "float32", "bfloat16"),
    )
    lora_rank: int = option(
        0,
        "Rank of LoRA adapters to train instead of all weights, which saves memory; 0 trains all weights.",
        at_least=0,
    )
    lora_alpha: float = option(0.0, "Scaling factor alpha for the LoRA adapters; 0 means twice the rank.", at_least=0)
    lora_targets: str = option(
        "",
        "Comma-separated names of the layers that get LoRA adapters, for example q_proj,v_proj (default: "
        "all linear layers).",
    )
    gradient_checkpointing: Literal["auto", "on", "off"] = option(
        "auto",
        "Recompute activations in the backward pass to save memory: on, off, or auto, which does so only "
        "for large micro-batches.",
        choices=("auto", "on", "off"),
    )

    @property
    def trained(self) -> bool:
        """False for the untrained default:SIZE models; all other models are assumed to be pretrained."""
        return not self.name.startswith("default:")


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(Section):
    """`[sampling]` section: settings for playing episodes."""

    episodes: int = option(
        256,
        "Number of episodes per training step; more episodes make the updates less noisy.",
        untrained=512,
        at_least=1,
    )
    group_size: int = option(
        8,
        "Number of episodes per task, all with the same seed; grpo and rloo need at least 2.",
        untrained=1,
        at_least=1,
    )
    concurrency: int = option(
        256,
        "Maximum number of episodes that run at the same time; lower it if memory runs out.",
        untrained=512,
        at_least=1,
    )
    max_tokens: int = option(
        0,
        "Maximum number of tokens per model reply; 0 means the length of the longest reply in the warm start for an "
        "untrained model, 4096 for a model that thinks before it replies (see --thinking), and 512 otherwise.",
        at_least=0,
    )
    kv_cache_gb: float = option(
        0.0,
        "Maximum size of the engine's KV cache in gigabytes; 0 uses up to 60% of the free GPU memory, or 25% of the "
        "main memory on a CPU. Lower it if other programs need the memory.",
        at_least=0,
    )
    temperature: float = option(
        1.0, "Sampling temperature in training and evaluation; lower values make replies less random.", at_least=0
    )
    top_p: float = option(
        1.0,
        "Nucleus sampling: sample only from the most likely tokens whose total probability reaches this "
        "value; 1 samples from all tokens.",
        above=0,
        at_most=1,
    )
    top_k: int = option(
        0, "Sample only from this many of the most likely tokens; 0 samples from all tokens.", at_least=0
    )
    min_p: float = option(
        0.0,
        "Exclude tokens whose probability is below this fraction of the highest probability; 0 excludes none.",
        at_least=0,
        at_most=1,
    )
    stop: tuple[str, ...] = option(
        (), "Stop sequence: end a reply at this text and remove the text from the action; repeatable."
    )
    dynamic_sampling: int = option(
        0,
        "Maximum number of times per training step to sample replacements for groups whose returns are all equal, "
        "which have no gradient; 0 disables this.",
        at_least=0,
    )
    oversampling: float = option(
        1.0,
        "Start this many times the number of groups that a training step needs, and cancel the slowest ones as soon as "
        "enough are complete; this favors short episodes. 1 waits for every episode.",
        at_least=1,
    )
    asynchronous: bool = option(
        False, "Collect episodes while the model is being updated; use this if episodes are slow or vary in length."
    )
    staleness: int = option(
        4,
        "Maximum age, in training steps, of the samples that an update trains on; used only with --asynchronous.",
        at_least=0,
    )
    rollout_workers: int | None = option(
        None,
        "Number of processes that run agents and environments while the local engine runs in the trainer's process; 0 "
        "runs everything in the trainer's process (default: on a GPU, one per 64 concurrent episodes and at most 12, "
        "if the environments reply immediately and CPU cores are free; otherwise 0).",
        at_least=0,
    )
    retries: int = option(2, "Number of times to retry an episode after its environment or engine failed.", at_least=0)
    engine: str = option(
        "local",
        "Inference engine that generates the replies: local (in the trainer's process), vllm (vLLM servers), sglang "
        "(running SGLang servers, see --engine-url), or the name of a registered engine.",
    )
    engine_url: tuple[str, ...] = option(
        (),
        "URL of a running vLLM or SGLang server to use, for example http://localhost:8000/v1; repeatable.",
    )
    engine_gpus: str = option(
        "",
        "Comma-separated numbers of the GPUs for the vLLM servers that are started, for example 2,3; the learner must "
        "not use them (default: the servers use the CPU).",
    )
    engine_servers: int = option(
        0,
        "Number of vLLM servers to start, which share the GPUs in --engine-gpus equally; 0 means one per GPU, or one "
        "server on a CPU.",
        at_least=0,
    )
    engine_kwargs: dict[str, Any] = option(
        None,
        "Further keyword arguments for the engine as a JSON object, for example '{\"max_context\": 4096}'.",
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "engine_kwargs", self.engine_kwargs or {})
        super().__post_init__()
        if self.engine == "local" and (self.engine_url or self.engine_gpus or self.engine_servers):
            raise BadValue("engine_url, engine_gpus and engine_servers select vLLM servers; add --engine vllm")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Section):
    """`[optimizer]` section: settings for updating the weights."""

    name: Literal["adamw", "muon"] = option(
        "adamw",
        "Optimizer: adamw, or muon, which updates weight matrices with Muon and all other parameters with AdamW.",
        flag="optimizer",
        untrained="muon",
        choices=("adamw", "muon"),
    )
    lr: float = option(
        BySize(small=5e-5, large=1e-6),
        "Highest learning rate: the upper limit of the adaptive schedule, or the peak of the linear one; with LoRA, "
        "the default for a pretrained model is 2e-5.",
        untrained=1e-2,
        at_least=0,
    )
    lr_schedule: Literal["adaptive", "linear"] = option(
        "adaptive",
        "Learning-rate schedule for policy-gradient algorithms: 'adaptive' starts at --lr-start and is adjusted after "
        "each step so that the step's KL approaches --target-kl; 'linear' warms up over --lr-warmup steps and then "
        "decays to --lr-final.",
        choices=("adaptive", "linear"),
    )
    lr_start: float = option(
        0.2,
        "Learning rate of the first step with the adaptive schedule, as a fraction of --lr.",
        above=0,
        at_most=1,
    )
    lr_warmup: int = option(
        8, "Number of training steps during which the linear schedule increases to its peak.", at_least=0
    )
    lr_final: float = option(
        0.2, "Learning rate at the end of the linear schedule, as a fraction of the peak learning rate.", at_least=0
    )
    lr_steps: int = option(
        0,
        "Number of training steps after which the linear schedule reaches --lr-final and stays there; 0 uses the "
        "run's initial --steps, even if the run is later continued with more steps.",
        at_least=0,
    )
    weight_decay: float = option(0.0, "Weight decay coefficient for AdamW; 0 disables weight decay.", at_least=0)
    max_grad_norm: float = option(
        1.0, "Maximum norm to which gradients are clipped; lower it if training is unstable.", untrained=0.3, above=0
    )
    epochs: int = option(
        1,
        "Number of passes over the samples in each training step; for sft, dpo and agentevol, over the training data.",
        at_least=1,
    )
    minibatches: int = option(
        1, "Number of optimizer updates per pass over the samples in a training step.", untrained=8, at_least=1
    )
    token_budget: int = option(
        0,
        "Maximum number of tokens per micro-batch, including padding; lower it if memory runs out. 0 means 32,768 for "
        "packed rows on a GPU if their activations fit into its memory, and 16,384 otherwise.",
        at_least=0,
    )
    packing: bool | None = option(
        None,
        "Pack samples into one row instead of padding them; only models with standard attention support this "
        "(default: for Llama-family models, on a GPU with at least 50M parameters, and if the samples are long).",
    )
    offload: bool = option(
        False,
        "Keep the optimizer's state and float32 weights in main memory and update them on the CPU, which saves 16 "
        "bytes of GPU memory per trained weight and makes updates slower; with several processes, also keep the shards "
        "of the weights and gradients there.",
        flag="offload_optimizer",
    )


@dataclass(frozen=True, kw_only=True)
class EvalConfig(Section):
    """`[eval]` section: evaluation on held-out tasks during training."""

    every: int = option(
        10,
        "Number of training steps between evaluations; 0 evaluates only before the first and after the last step.",
        flag="eval_every",
        at_least=0,
    )
    episodes: int = option(
        256,
        "Number of episodes per evaluation; more episodes make the success rate more precise.",
        flag="eval_episodes",
        at_least=1,
    )
    env: tuple[str, ...] = option(
        (), "Environment to evaluate on instead of the training environments; repeatable.", flag="eval_env"
    )
    kwargs: dict[str, Any] = option(
        None,
        "Keyword arguments for the --eval-env environments as a JSON object, for example '{\"max_turns\": 12}'.",
        flag="eval_env_kwargs",
    )
    seed: int = option(
        900_000, "Seed from which the held-out seeds of the evaluation tasks are derived.", flag="eval_seed"
    )
    temperature: float = option(
        -1.0,
        "Sampling temperature in evaluations; 0 always selects the most likely token, and -1 uses --temperature.",
        flag="eval_temperature",
        at_least=-1,
    )
    target: float = option(
        0.0,
        "Stop training once the success rate on held-out tasks, from 0 to 1, reaches this value; 0 always "
        "runs all steps.",
        at_least=0,
        at_most=1,
    )
    rollback: float = option(
        3.0,
        "If the success rate on held-out tasks falls below the best one by more than this many standard errors, "
        "restore the weights of the newest evaluation that was within one standard error of the best one, and halve "
        "the learning rate; 0 disables this.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "kwargs", self.kwargs or {})
        super().__post_init__()
        if -1 < self.temperature < 0:
            raise BadValue(f"eval_temperature must be -1 or at least 0, got {self.temperature}")
        if self.kwargs and not self.env:
            raise BadValue("eval_env_kwargs requires eval_env; use --eval-env ID --eval-env-kwargs JSON")


@dataclass(frozen=True, kw_only=True)
class RunConfig(Section):
    """`[run]` section: number of steps, output folder and hardware settings."""

    out: str = option("", "Folder of the run (default: runs/ENV-ALGORITHM-SEED).")
    seed: int = option(0, "Random seed for tasks, sampling, minibatches and the initial weights.")
    steps: int = option(
        80,
        "Number of training steps (rounds of exploration for agentevol); for sft and dpo, number of updates, where 0 "
        "means --epochs passes over the data.",
        at_least=0,
    )
    save_every: int = option(10, "Number of training steps between checkpoints.", at_least=1)
    keep: int = option(2, "Number of most recent checkpoints to keep; the best model is kept separately.", at_least=0)
    store: bool = option(
        True,
        "Store the trajectories from every step in the run's `trajectories` folder; turn this off to save disk space.",
    )
    device: str = option(
        "auto",
        "Device to run the model on: cpu, cuda, the number of a GPU as in cuda:1, or auto, which uses a GPU if one is "
        "available. With torchrun, every process uses its own GPU.",
    )
    tf32: bool = option(
        True,
        "On a GPU, multiply float32 matrices with TF32, which is several times faster and accurate to about three "
        "digits; bfloat16 models do not use it. Turn it off if you need full float32 precision.",
    )
    threads: int = option(
        0,
        "Number of CPU threads that PyTorch uses; 0 means 1 for a small model on the CPU, and otherwise PyTorch's "
        "default, at most one per usable core.",
        at_least=0,
    )
    tensorboard: bool = option(False, "Also write the metrics as TensorBoard event files.")
    wandb: bool = option(False, "Also log the metrics to Weights & Biases, offline unless you are logged in.")
    mlflow: bool = option(
        False, "Also log the metrics to MLflow: to MLFLOW_TRACKING_URI, or to a database in the run's folder if unset."
    )


SECTIONS: Mapping[str, type[Section | AgentSettings]] = {
    "env": EnvConfig,
    "model": ModelConfig,
    "agent": AgentSettings,
    "sampling": SamplingConfig,
    "optimizer": OptimizerConfig,
    "warm_start": WarmStartConfig,
    "eval": EvalConfig,
    "run": RunConfig,
    "ray": RayConfig,
}

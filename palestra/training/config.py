"""Typed configuration for a training run. Does not import torch.

`palestra.training.sections` defines the sections; `palestra.training.recipe` builds a config from flags, keyword
arguments and recipes.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from palestra.agents.settings import AgentSettings
from palestra.algorithms.base import Algorithm, PolicyGradient
from palestra.algorithms.rebn import ReBN
from palestra.errors import BadValue
from palestra.training.config_values import auto_values, qualified_name, values_for_size
from palestra.training.ray_section import RayConfig
from palestra.training.sections import (
    SECTIONS,
    EnvConfig,
    EvalConfig,
    ModelConfig,
    OptimizerConfig,
    RunConfig,
    SamplingConfig,
)
from palestra.training.warm_start_section import WarmStartConfig

UNTRAINED_REPLY = 16  # maximum number of tokens in the replies of an untrained model without a warm start
OTHER_PROBABILITIES = {
    "sglang",
    "vllm",
}  # engines whose kernels differ from the learner's, so their samples need importance weights


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The resolved configuration of a training run: one object per section, and the algorithm with its own config."""

    env: EnvConfig = field(default_factory=EnvConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    agent: AgentSettings = field(default_factory=AgentSettings)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    algorithm: Algorithm[Any] = field(default_factory=ReBN)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    run: RunConfig = field(default_factory=RunConfig)
    ray: RayConfig = field(default_factory=RayConfig)

    @property
    def needs_reference(self) -> bool:
        """Return whether a run keeps a frozen copy of the model at the start of RL."""
        return self.algorithm.needs_reference or bool(getattr(self.algorithm.config, "kl_unsolved", 0))

    def __post_init__(self) -> None:
        self._resolve_defaults()
        algorithm, sampling = self.algorithm, self.sampling
        if algorithm.needs_env and not self.env.name:
            raise BadValue("name at least one environment: --env game:GuessTheNumber-v0-easy")
        if algorithm.needs_data and not algorithm.config.data:
            raise BadValue(
                f"{algorithm.name} trains on stored trajectories; set --data, for example to runs/a/trajectories"
            )
        if algorithm.needs_env and self.run.steps < 1:
            raise BadValue(f"steps must be at least 1, got {self.run.steps}")
        if sampling.episodes % sampling.group_size:
            raise BadValue(f"episodes ({sampling.episodes}) must be a multiple of group_size ({sampling.group_size})")
        if algorithm.needs_groups and sampling.group_size < 2:
            raise BadValue(f"{algorithm.name} compares the episodes of a group, so group_size must be at least 2")
        if algorithm.trainer == "online":
            self._check_filters()
        elif sampling.dynamic_sampling or sampling.oversampling > 1:
            raise BadValue(
                f"{algorithm.name} does not support --dynamic-sampling and --oversampling; use a policy-gradient "
                "algorithm such as grpo"
            )
        if isinstance(algorithm, PolicyGradient):
            _ = algorithm.teacher  # raises BadValue if the algorithm needs a teacher and none is set
            if algorithm.config.is_correction == "always" and sampling.temperature == 0:
                raise BadValue(
                    "is_correction='always' needs a temperature above 0, because importance weights compare the "
                    "probabilities of sampled tokens; use --temperature 1"
                )
        if sampling.rollout_workers and self.env.backend != "inline":
            raise BadValue(
                f"rollout_workers run the environments themselves; remove --env-backend {self.env.backend}, or use "
                "--rollout-workers 0"
            )
        if sampling.dynamic_sampling and sampling.group_size < 2:
            raise BadValue("dynamic_sampling compares the episodes of a group, so group_size must be at least 2")
        if sampling.oversampling > 1 and sampling.asynchronous:
            raise BadValue("asynchronous training does not wait for slow episodes; remove --oversampling")
        if sampling.asynchronous and sampling.temperature == 0:
            raise BadValue(
                "asynchronous training needs a temperature above 0, because importance weights compare probabilities "
                "of sampled tokens; use --temperature 1"
            )
        if sampling.asynchronous and algorithm.trainer != "online":
            raise BadValue(f"{algorithm.name} has no asynchronous trainer; remove --asynchronous")
        if self.ray.enabled and sampling.engine_gpus:
            raise BadValue(
                "--engine-gpus is for a single machine; with --ray, use --engine-servers and --ray-server-gpus"
            )
        if algorithm.trainer == "evolution" and algorithm.config.rounds != 1 and not self.run.store:
            raise BadValue("evolve_rounds other than 1 reads the stored episodes of earlier rounds; remove --no-store")

    def _check_filters(self) -> None:
        """Raise BadValue if sampling excludes tokens: the policy gradient assumes that every token can be sampled."""
        for name, neutral in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)):
            value = getattr(self.sampling, name)
            if value != neutral and self.sampling.temperature > 0:
                flag = name.replace("_", "-")
                raise BadValue(
                    f"{name}={value:g} samples from a filtered distribution, but {self.algorithm.name} computes "
                    f"probabilities without the filter, which biases its gradient. Use --{flag} {neutral:g}; to sample "
                    "less randomly, lower --temperature"
                )

    def _resolve_defaults(self) -> None:
        """Set the options whose default depends on the algorithm, the warm start and whether the model is trained."""
        trained, lora = self.model.trained, self.model.lora_rank > 0
        for name in SECTIONS:
            section = getattr(self, name)
            values = auto_values(section, self.algorithm, trained=trained, lora=lora)
            if values:
                object.__setattr__(self, name, replace(section, **values))
        object.__setattr__(self, "warm_start", self.warm_start.resolved(trained=trained))
        values = auto_values(self.algorithm.config, self.algorithm, trained=trained, lora=lora)
        if "is_correction" in values and self.sampling.engine in OTHER_PROBABILITIES and self.sampling.temperature:
            values["is_correction"] = "always"
        if values:
            object.__setattr__(self, "algorithm", type(self.algorithm)(replace(self.algorithm.config, **values)))

    @property
    def eval_envs(self) -> list[str]:
        """Names of the environments to evaluate on."""
        return list(self.eval.env) or list(self.env.weights)

    @property
    def eval_kwargs(self) -> dict[str, Any]:
        """Keyword arguments for the environments to evaluate on."""
        return self.eval.kwargs if self.eval.env else self.env.kwargs

    @property
    def eval_temperature(self) -> float:
        """Sampling temperature in evaluations."""
        return self.sampling.temperature if self.eval.temperature < 0 else self.eval.temperature

    def with_max_tokens(self, tokenizer: Any) -> TrainConfig:
        """Return the config with a maximum reply length that suits the chat template, unless one was set."""
        if self.sampling.max_tokens:
            return self
        return self.with_reply_length(
            self.agent.default_max_tokens(tokenizer) if self.model.trained else UNTRAINED_REPLY
        )

    def with_reply_length(self, tokens: int) -> TrainConfig:
        """Return the config with this maximum number of tokens per reply."""
        return replace(self, sampling=replace(self.sampling, max_tokens=tokens))

    def with_model_size(self, parameters: int) -> TrainConfig:
        """Return the config with learning rates for a model with this number of parameters, unless they were set."""
        return replace(
            self,
            optimizer=replace(self.optimizer, **values_for_size(self.optimizer, parameters)),
            warm_start=self.warm_start.for_size(parameters),
        )

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

"""Play episodes with the model in training: agents, the options of rollouts, and the processes that take part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from palestra.agents import ChatAgent
from palestra.engines.base import PolicyEngine
from palestra.progress import phase
from palestra.rollout import RolloutResult, RolloutWorkers, Task, collect
from palestra.rollout.collect import collect_groups
from palestra.rollout.env_provider import EnvProvider, create_env_provider
from palestra.training.config import TrainConfig
from palestra.training.failures import check_finished
from palestra.training.rollout_workers import rollout_workers


class EpisodePlayer:
    """Plays episodes with an engine, according to a config, in this process or in others."""

    def __init__(self, config: TrainConfig, engine: PolicyEngine, log: Callable[[str], None]) -> None:
        self._config = config
        self._engine = engine
        self._log = log
        self._env_provider: EnvProvider | None = None
        self._rollout_workers: RolloutWorkers | None = None
        self._agents: dict[bool, ChatAgent] = {}  # by whether the agent plays evaluation episodes

    def set_config(self, config: TrainConfig) -> None:
        """Use another config from the next episode on."""
        if config is not self._config:
            self._config = config
            self._agents.clear()

    @asynccontextmanager
    async def processes(self) -> AsyncIterator[None]:
        """Keep the processes that play episodes or run environments running inside the `with` block."""
        env, sampling = self._config.env, self._config.sampling
        if self._env_provider is not None or self._rollout_workers is not None:  # already running
            yield
        elif env.backend == "inline":
            async with rollout_workers(self._config, self.agent, self._engine, self._log) as self._rollout_workers:
                try:
                    yield
                finally:
                    self._rollout_workers = None
        else:
            self._env_provider = create_env_provider(
                env.backend,
                # In an asynchronous run, evaluation episodes run concurrently with training episodes.
                capacity=sampling.concurrency * (2 if sampling.asynchronous else 1),
                workers=env.workers or None,
                step_timeout=env.step_timeout or None,
                reset_timeout=env.reset_timeout or None,
            )
            try:
                yield
            finally:
                await self._env_provider.aclose()
                self._env_provider = None

    def agent(self, *, evaluation: bool = False) -> ChatAgent:
        """Return an agent that plays with the engine's weights. It is created once, since it analyzes the template."""
        if evaluation not in self._agents:
            self._agents[evaluation] = self._make_agent(evaluation=evaluation)
        return self._agents[evaluation]

    def _make_agent(self, *, evaluation: bool) -> ChatAgent:
        sampling = self._config.sampling
        temperature = self._config.eval_temperature if evaluation else sampling.temperature
        filters = {"top_p": sampling.top_p, "top_k": sampling.top_k, "min_p": sampling.min_p}
        return self._config.agent.chat_agent(
            self._engine,
            max_tokens=sampling.max_tokens,
            temperature=temperature,
            stop=sampling.stop,
            tempered_logprobs=not evaluation,  # the learner also computes log-probs at the sampling temperature
            **(filters if temperature else {}),
        )

    @property
    def env_options(self) -> dict[str, Any]:
        """Options for `collect` and `stream` that determine how environments are built and where they run."""
        env = self._config.env
        options: dict[str, Any] = {"wrappers": env.all_wrappers}
        if self._env_provider is not None:
            return {**options, "env_provider": self._env_provider}
        return {**options, "step_timeout": env.step_timeout or None, "reset_timeout": env.reset_timeout or None}

    @property
    def rollout_options(self) -> dict[str, Any]:
        """Options for `collect` and `stream` in training episodes, including support for a horizon per task."""
        options = self.env_options
        if self._config.env.schedule.stages:
            options["wrappers"] = (*options["wrappers"], ("Horizon", {"turns": None}))
        sampling = self._config.sampling
        if self._rollout_workers is not None:
            options["rollout_workers"] = self._rollout_workers
        # An episode without an action cannot be trained on.
        return {
            **options,
            "concurrency": sampling.concurrency,
            "retries": sampling.retries,
            "fail_on_long_prompt": True,
        }

    async def play(self, tasks: list[Task], *, evaluation: bool = False, groups: int | None = None) -> RolloutResult:
        """Play `tasks`. If `groups` is set, stop when that many groups are complete."""
        agent = self.agent(evaluation=evaluation)
        with phase("evaluating" if evaluation else "sampling", len(tasks)) as shown:
            if groups is None:
                result = await collect(agent, tasks, on_trajectory=shown.count, **self.rollout_options)
            else:
                result = await collect_groups(agent, tasks, groups=groups, **self.rollout_options)
        check_finished(result, "the model")
        return result

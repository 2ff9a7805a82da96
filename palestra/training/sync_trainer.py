"""Synchronous RL: play a step's episodes, train on them, repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from time import perf_counter
from typing import Any

from palestra.algorithms.episode import penalize_cut_replies
from palestra.algorithms.hooks import with_hook_rewards
from palestra.progress import phase
from palestra.rollout import RolloutResult
from palestra.rollout.types import Trajectory
from palestra.training.config import TrainConfig
from palestra.training.group_sampling import group_key, merge, varied_groups
from palestra.training.rollout_metrics import metrics_by_env, rollout_metrics
from palestra.training.run import TrainingRun
from palestra.training.step import reinforcement_step
from palestra.training.tasks import Curriculum, training_tasks
from palestra.training.teacher import connect_teacher, score_samples
from palestra.training.throughput import throughput_metrics, used_gpu_memory
from palestra.training.trainer import Trainer
from palestra.training.warm_start import warm_start


class SyncTrainer(Trainer):
    """On-policy RL trainer that alternates between playing episodes and updating the weights."""

    distributed_support = True
    rolls_back = True

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        self.curriculum = Curriculum.of(config)
        self.extra_groups = 0  # number of groups played so far in addition to those configured
        super().__init__(config, **options)
        self._teacher = connect_teacher(config, self.learner.policy.tokenizer)

    async def run(self) -> TrainingRun:
        try:
            return await super().run()
        finally:
            if self._teacher is not None:
                await self._teacher.aclose()

    async def prepare(self) -> None:
        """Warm-start an untrained model on a scripted player's episodes."""
        longest = await warm_start(
            self.learner,
            self.config,
            self.log,
            on_epoch=self.evaluate_epoch,
            model=self.published_agent,
            **self.player.env_options,
        )
        self.set_reply_length(longest)
        await self.publish()

    async def iteration(self, step: int) -> dict[str, Any]:
        """Play a step's tasks and train on the trajectories."""
        started = perf_counter()
        result, trajectories, groups = await self._sample(step)
        scores = await self.teacher_logprobs(trajectories)
        sampled = perf_counter()
        memory = [used_gpu_memory(self.learner.policy.device)]
        async with self.engine.paused():
            await self.engine.release_memory()
            with phase("learning"):
                learned = reinforcement_step(
                    self.learner, trajectories, step, version=self.engine.version, teacher_logprobs=scores
                )
            learned |= await self.publish()
        finished = perf_counter()
        memory.append(used_gpu_memory(self.learner.policy.device))
        self.store(step, result)
        result = await self.gather(result)
        self.curriculum = self.curriculum.after(result.trajectories)
        return {
            **self.step_settings(step),
            **rollout_metrics(result),
            **self.log_tasks(step, result),
            **(metrics_by_env(result.trajectories) if len(self.config.env.weights) > 1 else {}),
            **learned,
            **groups,
            **throughput_metrics(trajectories, learned.get("updates", 0), finished - sampled, memory),
            "seconds_sampling": sampled - started,
            "seconds_learning": finished - sampled,
        }

    async def _sample(self, step: int) -> tuple[RolloutResult, list[Trajectory], dict[str, float]]:
        """Play a step's episodes; return them, the trajectories to train on, and dynamic sampling metrics."""
        sampling = self.config.sampling
        target = sampling.episodes // sampling.group_size
        results: list[RolloutResult] = []
        trained: list[Trajectory] = []
        played = kept = 0
        for _ in range(1 + sampling.dynamic_sampling):
            needed = target - kept
            started = ceil(needed * sampling.oversampling)
            tasks = training_tasks(
                self.config, step, self.curriculum, groups=started, played=played, extra=self.extra_groups
            )
            results.append(await self.play(tasks, groups=needed if started > needed else None))
            played += started
            trajectories = self.rewarded(results[-1].trajectories)
            if not sampling.dynamic_sampling:
                trained = trajectories
                break
            varied = varied_groups(trajectories, self.distributed)
            trained += [t for t in trajectories if group_key(t) in varied]
            kept += len(varied)
            if kept >= target:
                break
        self.extra_groups += played - target
        result = merge(results)
        if not sampling.dynamic_sampling:
            return result, trained, {}
        everything = trained or self.rewarded(result.trajectories)  # without a varied group, the step has no signal
        return result, everything, {"groups_played": float(played), "groups_kept": float(kept)}

    async def teacher_logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[float]] | None:
        """Return the log-probs under a teacher behind a server; None if there is no such teacher."""
        return None if self._teacher is None else await score_samples(self._teacher, trajectories)

    def rewarded(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the trajectories with rewards from the reward hook, if there is one, and with the cut penalty."""
        config = self.learner.policy_gradient.config
        return penalize_cut_replies(with_hook_rewards(config.reward_hook, trajectories), config.cut_penalty or 0.0)

    def step_settings(self, step: int) -> dict[str, Any]:
        """Return a step's horizon and, if there is a curriculum, its level."""
        settings: dict[str, Any] = {"horizon": self.config.env.schedule.at(step)}
        return {**settings, "level": self.curriculum.open} if self.config.env.curriculum else settings

    def state(self) -> dict[str, Any]:
        return {"curriculum": self.curriculum.state(), "extra_groups": self.extra_groups}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.curriculum = self.curriculum.resumed(state["curriculum"])
        self.extra_groups = state["extra_groups"]

"""Base class for trainers: run folder, model, engine, held-out evaluation, checkpoints and metrics.

A subclass implements `prepare` (before the first step) and `iteration` (one step). All randomness depends only on the
seed and the step, so a run that was killed continues from its last checkpoint with the same results.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import torch

from palestra.agents import ChatAgent
from palestra.engines.default_model import count_parameters
from palestra.errors import BadValue
from palestra.folders import damage, error_record, locked
from palestra.options import is_unset
from palestra.progress import phase
from palestra.rollout import RolloutResult, Task, Writer
from palestra.rollout.heap import frozen_heap
from palestra.rollout.task_log import TaskLog, overlap
from palestra.training import checkpoint
from palestra.training.config import TrainConfig
from palestra.training.cpu_threads import cpu_threads
from palestra.training.critic import copy_policy_weights
from palestra.training.distributed import connect, explained_disconnection, gather_result
from palestra.training.episode_player import EpisodePlayer
from palestra.training.failures import CauseLog, explained_memory_errors
from palestra.training.learner import Learner
from palestra.training.policy import Policy, load_policy
from palestra.training.reporting import console
from palestra.training.reporting.metrics import Metrics, MetricsInMemory
from palestra.training.reporting.warnings import Warnings
from palestra.training.rollback import Rollback
from palestra.training.rollout_metrics import rollout_metrics
from palestra.training.run import TrainingRun
from palestra.training.run_start import damaged_start, prepare_folder
from palestra.training.sampling_engine import make_engine, publish
from palestra.training.tasks import has_held_out_tasks, held_out_tasks
from palestra.training.teacher import load_teacher

START = "start"  # folder of the model at the start of RL, in the folder of a run
Log = Callable[[str], None]
OnMetrics = Callable[[Sequence[Mapping[str, Any]]], None]  # called after each step with all rows so far


class Trainer(ABC):
    """Trains according to a config; continues from the last checkpoint if the folder has one with the same config."""

    lockstep: ClassVar[bool] = True  # whether to sample in lockstep on a CPU, for bitwise reproducible results
    distributed_support: ClassVar[bool] = False  # whether the trainer supports several processes (torchrun)
    rolls_back: ClassVar[bool] = False  # whether to restore earlier weights if the success rate falls

    def __init__(
        self,
        config: TrainConfig,
        *,
        resume: bool = True,
        log: Log = lambda _: None,
        on_metrics: OnMetrics | None = None,
    ) -> None:
        self.config = config
        self._given = config  # before the length of replies is set from the chat template or the warm start
        self._settings = config.to_dict()
        self.distributed = connect(config.run.device)
        self.log = log if self.distributed.is_main else lambda _: None
        self._on_metrics = on_metrics if self.distributed.is_main else None
        if self.distributed.size > 1 and not self.distributed_support:
            raise BadValue(f"{type(self).__name__} runs in one process; start it without torchrun")
        self.folder = config.folder
        self._lock = ExitStack()  # lock that the main process holds until the run ends
        self.best = -1.0
        self.step = 0
        self.unpublished = False  # whether the engine must receive the weights before it samples
        try:
            with explained_memory_errors():
                self._set_up(resume)
        except BaseException:
            self._lock.close()
            raise

    def _set_up(self, resume: bool) -> None:
        """Claim the folder, load the model and create the learner, the engine and the metrics."""
        config = self.config
        last = self.distributed.on_main(lambda: self._claim_folder(resume))
        self.fresh = last is None
        with phase(f"loading {config.model.name if last is None else last}"):
            policy = load_policy(config, None if last is None else str(last), self.distributed)
        parameters = count_parameters(policy.model)
        config = self.config = config.with_max_tokens(policy.tokenizer).with_model_size(parameters)
        if self.fresh and is_unset(self._given.optimizer, "lr"):
            self.log(f"learning rate: at most {config.optimizer.lr:g}, for {parameters / 1e6:,.0f}M parameters")
        self._warnings = Warnings(config)
        self._causes = CauseLog()
        torch.set_num_threads(cpu_threads(config.run.threads, parameters, policy.device.type))
        reference = self._load_reference(policy, last) if config.needs_reference else None
        self.learner = Learner(policy, config, reference, self.distributed, load_teacher(config, policy))
        self._save_reply_length()
        self.rollback = Rollback(self.learner, self.folder, errors=config.eval.rollback * self.rolls_back)
        if last is not None:
            state = checkpoint.load_state(self.learner, last)
            self.step, self.best = state["step"], state["best"]
            self.learner.lr_steps = state["lr_steps"]
            self.rollback.load(state, last)
            self._limit_replies(state["max_tokens"])
            self.load_state(state)
            self.log(f"resumed from {last} at step {self.step}")
        self.metrics = (Metrics if self.distributed.is_main else MetricsInMemory)(
            self.folder,
            tensorboard=config.run.tensorboard,
            wandb=config.run.wandb,
            mlflow=config.run.mlflow,
            config=config.to_dict(),
            from_step=self.step if last else None,
        )
        self.task_log = TaskLog(self.folder if self.distributed.is_main else None, from_step=self.step if last else -1)
        self.engine = make_engine(config, policy, self.distributed, lockstep=self.lockstep)
        self.player = EpisodePlayer(self.config, self.engine, self.log)
        self.unpublished = self.engine.starts_empty

    @abstractmethod
    async def prepare(self) -> None:
        """Prepare the model before a new run's first step."""

    @abstractmethod
    async def iteration(self, step: int) -> dict[str, Any]:
        """Run one step and return its metrics."""

    def state(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint in addition to weights, optimizer and step."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state`."""

    async def run(self) -> TrainingRun:
        """Train until the last step or until the target success rate is reached."""
        try:
            is_main = self.distributed.is_main
            record: AbstractContextManager[None] = error_record(self.folder) if is_main else nullcontext()
            # The heap is also frozen between rollouts, so that collections do not include the model.
            with record, explained_memory_errors(), explained_disconnection(self.distributed), frozen_heap():
                await self._run_steps()
        finally:
            self.metrics.close()
            self._lock.close()
        self.distributed.gather(None)  # barrier, so that no process exits while another one still communicates with it
        length = self.config.sampling.max_tokens
        return TrainingRun(folder=self.folder, rows=self.metrics.rows, config=self._given, max_tokens=length)

    async def _run_steps(self) -> None:
        steps = self.config.run.steps
        async with self.engine, self.player.processes():
            if self.unpublished and not self.fresh:
                await self.publish()
            if self.fresh:
                await self.prepare()
                self._copy_to_critic()
                self._save_reference()
                start = await self.evaluate()
                if start:
                    self.rollback.observe(start["eval_success"], self.config.eval.episodes, 0)
                self.record({"step": -1, **start})
                self._save(0)
            while self.step < steps and not self._target_reached():
                row = await self.iteration(self.step)
                self.record({"step": self.step, **row, **await self._evaluate_if_due(self.step)})
                self.step += 1
                if self.step % self.config.run.save_every == 0 or self.step == steps or self._target_reached():
                    self._save(self.step)

    # Sampling

    def set_reply_length(self, tokens: int) -> None:
        """Limit the replies of an untrained model to this many tokens, if it is not 0 and no other limit was set."""
        self._limit_replies(tokens)
        self.player.set_config(self.config)

    def _limit_replies(self, tokens: int) -> None:
        if tokens and not self._given.sampling.max_tokens and not self.config.model.trained:
            self.config = self.learner.config = self.config.with_reply_length(tokens)
            self._save_reply_length()

    def _save_reply_length(self) -> None:
        """Let the model's generation config contain the limit of an untrained model, which is not in the run's config.

        `palestra eval` then uses the same limit.
        """
        if not self.config.model.trained:
            self.learner.policy.sampler.generation_config.max_new_tokens = self.config.sampling.max_tokens

    async def publish(self) -> dict[str, float]:
        """Make the engine use the current weights for sampling; return metrics of the check after the update."""
        self.unpublished = False
        return await publish(self.engine, self.learner)

    async def published_agent(self, reply_length: int) -> ChatAgent:
        """Return an agent that plays with the current weights; `reply_length` is as in `set_reply_length`."""
        self.set_reply_length(reply_length)
        await self.publish()
        return self.player.agent()

    async def play(self, tasks: list[Task], *, evaluation: bool = False, groups: int | None = None) -> RolloutResult:
        """Play `tasks` with the current weights; with several processes, play only this process's shard.

        If `groups` is set, stop when that many groups are complete.
        """
        if groups is not None and self.distributed.size > 1:
            raise BadValue("oversampling runs in one process; start without torchrun, or use --oversampling 1")
        if self.unpublished:
            await self.publish()
        result = await self.player.play(self.distributed.shard(tasks), evaluation=evaluation, groups=groups)
        await self._wait_for_processes()
        return result

    async def gather(self, result: RolloutResult) -> RolloutResult:
        """Return the combined rollouts from all processes, for metrics, and log new causes of failed episodes."""
        await self._wait_for_processes()
        gathered = gather_result(result, self.distributed)
        for warning in self._causes.new(gathered.failures):
            self.log(warning)
        return gathered

    async def _wait_for_processes(self) -> None:
        """Wait for all processes. Episodes continue to be played, and stopped servers are restarted, while waiting."""
        if self.distributed.size > 1:
            await asyncio.to_thread(self.distributed.gather, None)

    # Evaluation

    async def evaluate(self) -> dict[str, Any]:
        """Evaluate on a fixed set of held-out tasks and return the metrics, which are empty without an environment."""
        names = self.config.eval_envs
        if not names:
            return {}
        result = await self.gather(await self.play(held_out_tasks(self.config), evaluation=True))
        metrics = {f"eval_{name}": value for name, value in rollout_metrics(result).items()}
        metrics |= {"eval_held_out": float(has_held_out_tasks(self.config)), **self._overlap("eval", result)}
        for name in names if len(names) > 1 else []:
            own = [t for t in result.trajectories if t.env_id == name]
            metrics[f"eval_success/{name}"] = sum(bool(t.success) for t in own) / max(1, len(own))
        return metrics

    async def evaluate_epoch(self, epoch: int, reply_length: int) -> None:
        """Record an evaluation after an epoch of the warm start, or before the first one, with a negative step."""
        await self.published_agent(reply_length)
        metrics = await self.evaluate()
        if metrics:
            self.record({"step": epoch - 1 - self.config.warm_start.all_epochs, "warm_epoch": epoch, **metrics})

    async def _final_evaluation(self) -> dict[str, Any]:
        """Evaluate once on tasks that no earlier evaluation has used, and return the metrics."""
        tasks = held_out_tasks(self.config, final=True)
        result = await self.gather(await self.play(tasks, evaluation=True))
        names = ("success", "success_low", "success_high")
        return {f"final_{name}": result.metrics[name] for name in names} | self._overlap("final", result)

    def _overlap(self, prefix: str, result: RolloutResult) -> dict[str, Any]:
        """Return the number of distinct tasks in an evaluation, and the share of episodes with a training task."""
        measured = overlap(result.trajectories, self.task_log.tasks)
        return {} if measured is None else {f"{prefix}_tasks": measured[0], f"{prefix}_seen": measured[1]}

    def log_tasks(self, step: int, result: RolloutResult) -> dict[str, Any]:
        """Record a training step's tasks, and return the number of distinct tasks so far as a metric."""
        self.task_log.add(step, result.trajectories)
        return {"distinct_tasks": len(self.task_log.tasks)} if self.task_log.tasks else {}

    def _target_reached(self) -> bool:
        return bool(self.config.eval.target) and self.best >= self.config.eval.target

    async def _evaluate_if_due(self, step: int) -> dict[str, Any]:
        """Run an evaluation if one is due, and save the model if it is the best so far."""
        config = self.config
        last = step + 1 == config.run.steps
        if not config.eval_envs or not (last or (config.eval.every and (step + 1) % config.eval.every == 0)):
            return {}
        started = perf_counter()
        metrics = await self.evaluate()
        metrics["seconds_evaluating"] = perf_counter() - started
        if metrics["eval_success"] > self.best:
            self.best = metrics["eval_success"]
            checkpoint.save_model(self.learner, self.folder / "best")
        fall = self.rollback.observe(metrics["eval_success"], config.eval.episodes, step + 1)
        if fall is not None:
            metrics["rollback"] = 1.0
            self.log(fall)
            await self.publish()
        if last or self._target_reached():
            metrics |= await self._final_evaluation()
        return metrics

    # Metrics and files

    def record(self, row: dict[str, Any]) -> None:
        """Store a metrics row and pass it to the callback or the log."""
        self.metrics.add(row)
        if self._on_metrics is not None:
            self._on_metrics(self.metrics.rows)
        else:
            self.log(console.format_row(row, self.config.run.steps))
        for warning in self._warnings.check(self.metrics.rows):
            self.log(warning)

    def store(self, step: int, result: RolloutResult) -> None:
        """Store a step's episodes, including failed ones."""
        if not self.config.run.store:
            return
        path = self.trajectory_file(step)
        path.unlink(missing_ok=True)  # a previous run that was killed during this step may have left the file
        with Writer(path) as writer:
            for trajectory in [*result.trajectories, *result.failures]:
                writer.write(trajectory)

    def trajectory_file(self, step: int) -> Path:
        """Return the path of the file for this process's episodes in a step."""
        rank = f".rank{self.distributed.rank}" if self.distributed.rank else ""
        return self.folder / "trajectories" / f"step-{step:06d}{rank}.jsonl.gz"

    def _claim_folder(self, resume: bool) -> Path | None:
        """Lock the run's folder until the run ends, and return the checkpoint to continue from, if there is one."""
        self._lock.enter_context(locked(self.folder, activity="training"))
        return prepare_folder(self.folder, self._settings, resume=resume, log=self.log)

    def _load_reference(self, policy: Policy, last: Path | None) -> Policy:
        if last is None:
            return policy.frozen()
        start = self.folder / START
        problem = self.distributed.on_main(lambda: damage(start))
        if problem is not None:
            raise damaged_start(start, problem)
        return load_policy(self.config, str(start)).frozen()

    def _copy_to_critic(self) -> None:
        """After a warm start, copy the model's weights into a critic that is a copy of the model."""
        policy = self.learner.policy
        if policy.critic_body is not None and self.learner.policy_gradient.critic == "model":
            copy_policy_weights(policy.critic_body, policy.model)
            self.learner.optimizer.reload_masters()

    def _save_reference(self) -> None:
        """Save the current model as the reference model, if the algorithm needs one."""
        if self.learner.reference is not None:
            checkpoint.save_model(self.learner, self.folder / START)
            self.learner.reference = self.learner.policy.frozen()

    def _save(self, step: int) -> None:
        config = json.dumps(self._settings)
        state = {"step": step, "best": self.best, "lr_steps": self.learner.lr_steps, "config": config}
        state |= {"max_tokens": self.config.sampling.max_tokens, **self.rollback.state(), **self.state()}
        checkpoint.save(self.learner, self.folder / "checkpoints" / f"step-{step}", state, self.rollback.files)
        if self.distributed.is_main:
            checkpoint.prune(self.folder, self.config.run.keep)
        checkpoint.save_model(self.learner, self.folder / "last")

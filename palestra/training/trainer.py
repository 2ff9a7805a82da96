"""What every kind of training shares: its folder, its model, held-out evaluation, checkpoints, records.

A subclass of `Training` says what is done before the first step and in one; the rest is here. Whatever is random
follows from the seed and the step, so that a run that was killed goes on, from its last checkpoint, as if it had not
been: the same command, the same curve.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import torch

from palestra import __version__
from palestra.agents import ChatAgent
from palestra.core import Env
from palestra.engines.local.engine import LocalEngine
from palestra.errors import BadValue, EngineFailed
from palestra.rollout import RolloutResult, Task, Writer, collect
from palestra.training import checkpoint
from palestra.training.config import TrainConfig
from palestra.training.distributed import connect
from palestra.training.gather import pooled
from palestra.training.horizon import HorizonSchedule
from palestra.training.learner import Learner
from palestra.training.policy import Policy, load_policy
from palestra.training.reporting import console
from palestra.training.reporting.metrics import Metrics, read
from palestra.training.tasks import held_out_tasks
from palestra.wrappers import Horizon

# What may differ when a run goes on: where it ends, what is shown and kept of it.
FREE = ("steps", "target", "out", "keep", "store", "tensorboard", "wandb")

SMALL = 1_000_000  # parameters

Say = Callable[[str], None]
Watch = Callable[[Sequence[Mapping[str, Any]]], None]  # sees all rows so far after each new one


@dataclass(slots=True, kw_only=True)
class Run:
    """A finished run."""

    folder: Path
    rows: list[dict[str, Any]]  # metrics, a step each
    first_success: float | None  # on held-out seeds, before the first step
    last_success: float | None  # and after the last


class Training(ABC):
    """A run of `config` in its folder; where that has a checkpoint of the same config, it goes on from there."""

    lockstep: ClassVar[bool] = True  # on a CPU: sampling that can be repeated bit for bit
    shared: ClassVar[bool] = False  # may several processes (torchrun) run it together?

    def __init__(
        self, config: TrainConfig, *, resume: bool = True, say: Say = lambda _: None, watch: Watch | None = None
    ) -> None:
        self.config = config
        self.world = connect()
        self.say = say if self.world.first else lambda _: None  # where there are several processes, the first speaks
        self._watch = watch if self.world.first else None
        if self.world.size > 1 and not self.shared:
            raise BadValue(f"{type(self).__name__} runs in one process; start it without torchrun")
        self.folder = config.folder
        self.best = -1.0
        self.step = 0
        last = self.world.once(lambda: self._claim_folder(resume))
        self.fresh = last is None
        policy = load_policy(config, None if last is None else str(last), self.world)
        if config.threads:
            torch.set_num_threads(config.threads)
        elif policy.device.type == "cpu" and sum(p.numel() for p in policy.model.parameters()) < SMALL:
            torch.set_num_threads(1)  # several would wait for each other longer than they compute
        reference = self._reference(policy, last) if self.needs_reference else None
        self.learner = Learner(policy, config, reference, self.world)
        if last is not None:
            state = checkpoint.load_state(self.learner, last)
            self.step, self.best = state["step"], state["best"]
            self.resumed(state)
            self.say(f"resumed from {last} at step {self.step}")
        self.metrics = (Metrics if self.world.first else Unwritten)(
            self.folder,
            tensorboard=config.tensorboard,
            wandb=config.wandb,
            config=config.to_dict(),
            from_step=self.step if last else -1,
        )
        self.engine = LocalEngine(
            policy.sampler,
            tokenizer=policy.tokenizer,
            max_running=config.concurrency,
            lockstep=self.lockstep and policy.device.type == "cpu",
        )

    # What a kind of training says

    @property
    def needs_reference(self) -> bool:
        """Is the model of the start needed later on?"""
        return self.config.kl > 0

    @abstractmethod
    async def prepare(self) -> None:
        """Before the first step of a run that starts."""

    @abstractmethod
    async def iteration(self, step: int) -> dict[str, Any]:
        """One step; what there is to say of it."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint should hold beside weights, optimiser and step."""
        return {}

    def resumed(self, state: Mapping[str, Any]) -> None:
        """`state` as it was saved."""

    # Running

    async def run(self) -> Run:
        config = self.config
        try:
            async with self.engine:
                if self.fresh:
                    await self.prepare()
                    self._keep_start()
                    self.record({"step": -1, **await self.evaluate()})
                    self._save(0)
                while self.step < config.steps and not self._reached():
                    row = await self.iteration(self.step)
                    self.record({"step": self.step, **row, **await self._judge(self.step)})
                    self.step += 1
                    if self.step % config.save_every == 0 or self.step == config.steps or self._reached():
                        self._save(self.step)
        finally:
            self.metrics.close()
        self.world.gather(None)  # nobody leaves while another may still listen
        evals = [row["eval_success"] for row in self.metrics.rows if "eval_success" in row]
        return Run(
            folder=self.folder,
            rows=self.metrics.rows,
            first_success=evals[0] if evals else None,
            last_success=evals[-1] if evals else None,
        )

    def agent(self) -> ChatAgent:
        """The model as it is."""
        config = self.config
        return ChatAgent(
            self.engine,
            temperature=config.temperature,
            top_p=config.top_p if config.temperature else 1.0,
            max_tokens=config.max_tokens,
            system=config.system or None,
        )

    @property
    def wrappers(self) -> list[Callable[[Env], Env]]:
        """Tasks that name a horizon in their options get it."""
        return [lambda env: Horizon(env, None)] if HorizonSchedule.parse(self.config.horizon).stages else []

    async def play(self, tasks: list[Task]) -> RolloutResult:
        """Let the model as it is play `tasks`; where there are several processes, this one's share of them."""
        config = self.config
        tasks = self.world.share(tasks)
        result = await collect(
            self.agent(), tasks, concurrency=config.concurrency, retries=config.retries, wrappers=self.wrappers
        )
        if not result.trajectories or result.stopped is not None:
            raise EngineFailed(f"the rollout broke off: {result.stopped or 'no episode was finished'}")
        return result

    async def evaluate(self) -> dict[str, Any]:
        """Held-out tasks, always the same, without a horizon, at the training temperature; nothing without an env."""
        ids = self.config.eval_envs
        if not ids:
            return {}
        result = pooled(await self.play(held_out_tasks(self.config)), self.world)
        found = {f"eval_{name}": value for name, value in figures(result).items()}
        for env_id in ids if len(ids) > 1 else []:
            mine = [t for t in result.trajectories if t.env_id == env_id]
            found[f"eval_success/{env_id}"] = sum(bool(t.success) for t in mine) / max(1, len(mine))
        return found

    def _reached(self) -> bool:
        """Is the success rate that was asked for there, on held-out seeds?"""
        return bool(self.config.target) and self.best >= self.config.target

    async def _judge(self, step: int) -> dict[str, Any]:
        """Evaluate where it is due, and keep the model where it is the best so far."""
        config = self.config
        last = step + 1 == config.steps
        if not config.eval_envs or not (last or (config.eval_every and (step + 1) % config.eval_every == 0)):
            return {}
        began = perf_counter()
        found = await self.evaluate()
        found["seconds_evaluating"] = perf_counter() - began
        if found["eval_success"] > self.best:
            self.best = found["eval_success"]
            self._link("best")
        return found

    # Keeping

    def record(self, row: dict[str, Any]) -> None:
        """A row of metrics, shown to who watches or said in a line."""
        self.metrics.add(row)
        if self._watch is not None:
            self._watch(self.metrics.rows)
        else:
            self.say(console.line(row, self.config.steps))

    def store(self, step: int, result: RolloutResult) -> None:
        """Keep the episodes of a step, failed ones too."""
        if not self.config.store:
            return
        path = self.stored_at(step)
        path.unlink(missing_ok=True)  # of an attempt at this step that was killed
        with Writer(path) as writer:
            for trajectory in [*result.trajectories, *result.failures]:
                writer.write(trajectory)

    def stored_at(self, step: int) -> Path:
        """Where the episodes of a step are kept."""
        rank = f".rank{self.world.rank}" if self.world.rank else ""
        return self.folder / "trajectories" / f"step-{step:06d}{rank}.jsonl.gz"

    def _claim_folder(self, resume: bool) -> Path | None:
        """Make the run's folder; the checkpoint to go on from, if there is one of this very config."""
        described = json.loads(json.dumps(self.config.to_dict()))
        settings = self.folder / "run.json"
        whole = checkpoint.checkpoints(self.folder)
        if whole and settings.exists() and resume:  # without a checkpoint there is nothing to lose
            saved = json.loads(settings.read_text())["config"]
            changed = sorted(k for k in described if k not in FREE and saved.get(k) != described[k])
            if changed:
                raise BadValue(
                    f"{self.folder} holds a run with other settings ({', '.join(changed)}). "
                    "Choose another --out, or start over with --no-resume"
                )
            return whole[-1]
        if not resume:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        versions = {"palestra": __version__, "python": platform.python_version()}
        versions |= {name: version(name) for name in ("torch", "transformers", "tokenizers")}
        settings.write_text(
            json.dumps({"config": described, "versions": versions, "command": sys.argv}, indent=2) + "\n"
        )
        return None

    def _reference(self, policy: Policy, last: Path | None) -> Policy:
        start = self.folder / "start"
        if last is not None and (start / "config.json").exists():
            return load_policy(self.config, str(start)).frozen()
        return policy.frozen()

    def _keep_start(self) -> None:
        """The model the first step starts from, where it is needed later on."""
        if self.learner.reference is not None:
            checkpoint.save_model(self.learner, self.folder / "start")
            self.learner.reference = self.learner.policy.frozen()

    def _save(self, step: int) -> None:
        state = {"step": step, "best": self.best, **self.state()}
        checkpoint.save(self.learner, self.folder / "checkpoints" / f"step-{step}", state)
        if self.world.first:
            checkpoint.prune(self.folder, self.config.keep)
        self._link("last")

    def _link(self, name: str) -> None:
        """`best` and `last` are whole models, for every command that takes a folder."""
        checkpoint.save_model(self.learner, self.folder / name)


class Unwritten(Metrics):
    """Rows of a process that writes no files."""

    def __init__(self, folder: Path, *, from_step: int = 0, **_: Any) -> None:
        self.rows = [row for row in read(folder / "metrics.jsonl") if row["step"] < from_step]
        self._sinks = []

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows.append(dict(row))


def figures(result: RolloutResult) -> dict[str, Any]:
    """What metrics say of a rollout."""
    m = result.metrics
    names = ("success", "success_low", "success_high", "return", "turns_per_episode", "tokens_per_episode", "truncated")
    found = {name: m[name] for name in (*names, "invalid_actions", "cut_replies", "tokens_per_second", "failures")}
    found |= {f"failures_{where}": count for where, count in m["failures_by_boundary"].items()}
    return found

"""Train an agent: sample, credit, learn, evaluate, keep; one iteration on one screen.

Whatever is random follows from the seed and the step, so that a run that was killed goes on, from its last checkpoint,
as if it had not been: the same command, the same curve.
"""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import torch

from palestra import __version__
from palestra.agents import Chat
from palestra.engines.hf import HFEngine
from palestra.errors import BadValue, EngineFailed
from palestra.rollout import Result, Task, Writer, collect
from palestra.seeding import child_seed
from palestra.train import checkpoint
from palestra.train.config import TrainConfig
from palestra.train.horizon import HorizonSchedule
from palestra.train.learner import Learner
from palestra.train.metrics import Metrics
from palestra.train.model import Policy, load_policy
from palestra.train.warmstart import Demonstrator
from palestra.wrappers import Horizon

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Run:
    """A finished run."""

    folder: Path
    rows: list[dict[str, Any]]  # metrics, a step each
    first_success: float | None  # on held-out seeds, before RL
    last_success: float | None  # and after


def train(config: TrainConfig, *, resume: bool = True, say: Say = lambda _: None) -> Run:
    """Run `config` to its last step; where its folder has a checkpoint of the same config, go on from there."""
    return asyncio.run(_Training(config, resume=resume, say=say).run())


class _Training:
    def __init__(self, config: TrainConfig, *, resume: bool, say: Say) -> None:
        self.config = config
        self.say = say
        self.folder = config.folder
        self.schedule = HorizonSchedule.parse(config.horizon)
        self.best = -1.0
        if config.threads:
            torch.set_num_threads(config.threads)
        last = self._claim_folder(resume)
        policy = load_policy(config, None if last is None else str(last))
        self.fresh = last is None
        self.step = 0
        reference = None
        if config.kl > 0:
            reference = self._reference(policy, last)
        self.learner = Learner(policy, config, reference)
        if last is not None:
            state = checkpoint.load_state(self.learner, last)
            self.step, self.best = state["step"], state["best"]
            self.say(f"resumed from {last} at step {self.step}")
        self.metrics = Metrics(self.folder, tensorboard=config.tensorboard, from_step=self.step if last else -1)
        self.engine = HFEngine(
            policy.model, tokenizer=policy.tokenizer, slots=config.concurrency, lockstep=policy.device.type == "cpu"
        )

    async def run(self) -> Run:
        config = self.config
        async with self.engine:
            if self.fresh:
                await self._warm_start()
                self._keep_start()
                await self._record({"step": -1, **await self._evaluate()})
                self._save(0)
            while self.step < config.steps:
                await self._iteration(self.step)
                self.step += 1
                if self.step % config.save_every == 0 or self.step == config.steps:
                    self._save(self.step)
        self.metrics.close()
        evals = [row["eval_success"] for row in self.metrics.rows if "eval_success" in row]
        return Run(
            folder=self.folder,
            rows=self.metrics.rows,
            first_success=evals[0] if evals else None,
            last_success=evals[-1] if evals else None,
        )

    async def _iteration(self, step: int) -> None:
        """Sample, learn, evaluate."""
        config = self.config
        began = perf_counter()
        horizon = self.schedule.at(step)
        result = await self._play(self._tasks(step), horizon, config.temperature)
        sampled = perf_counter()
        async with self.engine.paused():
            learned = self.learner.learn(result.trajectories, step)
            self.engine.weights_changed()
        done = perf_counter()
        self._store(step, result)
        row: dict[str, Any] = {
            "step": step,
            "horizon": horizon,
            **_figures(result),
            **learned,
            "seconds_sampling": sampled - began,
            "seconds_learning": done - sampled,
        }
        last = step + 1 == config.steps
        if last or (config.eval_every and (step + 1) % config.eval_every == 0):
            row |= await self._evaluate()
            row["seconds_evaluating"] = perf_counter() - done
            if row["eval_success"] > self.best:
                self.best = row["eval_success"]
                self._link("best")
        await self._record(row)

    async def _play(self, tasks: list[Task], horizon: int | None, temperature: float) -> Result:
        config = self.config
        agent = Chat(
            self.engine,
            temperature=temperature,
            top_p=config.top_p if temperature else 1.0,
            max_tokens=config.max_tokens,
            system=config.system or None,
        )
        wrappers = [] if horizon is None else [lambda env: Horizon(env, horizon)]
        result = await collect(agent, tasks, concurrency=config.concurrency, retries=config.retries, wrappers=wrappers)
        if not result.trajectories or result.stopped is not None:
            raise EngineFailed(f"the rollout broke off: {result.stopped or 'no episode was finished'}")
        return result

    def _tasks(self, step: int) -> list[Task]:
        """This step's episodes: groups share a seed, environments are drawn by weight."""
        config = self.config
        ids, weights = list(config.envs), list(config.envs.values())
        rng = Random(child_seed(config.seed, "envs", step))
        tasks = []
        for group in range(config.episodes // config.group_size):
            env_id = ids[0] if len(ids) == 1 else rng.choices(ids, weights)[0]
            seed = child_seed(config.seed, "train", step, group)
            tasks += [Task(env_id=env_id, seed=seed, group=group, member=m) for m in range(config.group_size)]
        return tasks

    async def _evaluate(self) -> dict[str, Any]:
        """Held-out tasks, always the same, without a horizon, at the training temperature."""
        config = self.config
        ids = list(config.envs)
        tasks = [
            Task(env_id=ids[i % len(ids)], seed=child_seed(config.eval_seed, "eval", i), group=i)
            for i in range(config.eval_episodes)
        ]
        result = await self._play(tasks, None, config.temperature)
        found = {f"eval_{name}": value for name, value in _figures(result).items()}
        for env_id in ids if len(ids) > 1 else []:
            mine = [t for t in result.trajectories if t.env_id == env_id]
            found[f"eval_success/{env_id}"] = sum(bool(t.success) for t in mine) / max(1, len(mine))
        return found

    async def _warm_start(self) -> None:
        """Clone a player's transcripts: the sloppy one teaches format, not strategy."""
        config = self.config
        count = config.warm_start
        if count < 0:
            count = 2000 if config.model.startswith("default:") else 0
        if count == 0:
            return
        policy = self.learner.policy
        player = Demonstrator(
            policy.tokenizer,
            "expert" if config.warm_player == "expert" else "random",
            max_tokens=config.max_tokens,
            system=config.system or None,
        )
        ids, weights = list(config.envs), list(config.envs.values())
        rng = Random(child_seed(config.seed, "warm"))
        tasks = [
            Task(env_id=rng.choices(ids, weights)[0], seed=child_seed(config.seed, "warm", i), group=i)
            for i in range(count)
        ]
        result = await collect(player, tasks, concurrency=64)
        if not result.trajectories:
            raise BadValue("the player whose transcripts were to be cloned finished no episode")
        loss = 0.0
        total = config.warm_epochs * -(-len(result.trajectories) // config.warm_batch)
        done = 0
        for _ in range(config.warm_epochs):
            order = list(range(len(result.trajectories)))
            rng.shuffle(order)
            for start in range(0, len(order), config.warm_batch):
                part = [result.trajectories[i] for i in order[start : start + config.warm_batch]]
                lr = config.warm_lr * min(1.0, (done + 1) / 10, (total - done) / (0.3 * total))
                loss = self.learner.clone(part, lr, observations=config.warm_observations)
                done += 1
        self.engine.weights_changed()
        self.learner.optimiser.forget()  # RL starts with clean averages
        self.say(f"warm start: {len(result.trajectories)} episodes of the {config.warm_player} player, loss {loss:.3f}")

    # Keeping

    def _claim_folder(self, resume: bool) -> Path | None:
        """Make the run's folder; the checkpoint to go on from, if there is one of this very config."""
        described = self.config.to_dict()
        settings = self.folder / "run.json"
        if settings.exists() and resume:
            saved = json.loads(settings.read_text())["config"]
            saved["env"] = tuple(saved["env"])
            changed = sorted(k for k in described if k not in ("steps", "out") and saved.get(k) != described[k])
            if changed:
                raise BadValue(
                    f"{self.folder} holds a run with other settings ({', '.join(changed)}). "
                    "Choose another --out, or start over with --no-resume"
                )
            whole = checkpoint.checkpoints(self.folder)
            if whole:
                return whole[-1]
        if not resume:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        versions = {"palestra": __version__, "python": platform.python_version(), "torch": torch.__version__}
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
        """The model RL starts from, where a KL is measured to it."""
        if self.learner.reference is not None:
            self.learner.policy.model.save_pretrained(self.folder / "start")
            self.learner.policy.tokenizer.save_pretrained(self.folder / "start")
            self.learner.reference = self.learner.policy.frozen()

    def _save(self, step: int) -> None:
        checkpoint.save(self.learner, self.folder / "checkpoints" / f"step-{step}", {"step": step, "best": self.best})
        checkpoint.prune(self.folder, self.config.keep)
        self._link("last")

    def _link(self, name: str) -> None:
        """`best` and `last` are whole models, for every command that takes a folder."""
        part = self.folder / f".{name}.part"
        shutil.rmtree(part, ignore_errors=True)
        self.learner.policy.model.save_pretrained(part)
        self.learner.policy.tokenizer.save_pretrained(part)
        shutil.rmtree(self.folder / name, ignore_errors=True)
        part.rename(self.folder / name)

    def _store(self, step: int, result: Result) -> None:
        if not self.config.store:
            return
        path = self.folder / "trajectories" / f"step-{step:06d}.jsonl.gz"
        path.unlink(missing_ok=True)  # of an attempt at this step that was killed
        with Writer(path) as writer:
            for trajectory in [*result.trajectories, *result.failures]:
                writer.write(trajectory)

    async def _record(self, row: dict[str, Any]) -> None:
        self.metrics.add(row)
        self.say(_line(row, self.config.steps))


def _figures(result: Result) -> dict[str, Any]:
    m = result.metrics
    names = ("success", "success_low", "success_high", "return", "turns_per_episode", "tokens_per_episode", "truncated")
    found = {name: m[name] for name in (*names, "invalid_actions", "cut_replies", "tokens_per_second", "failures")}
    found |= {f"failures_{where}": count for where, count in m["failures_by_boundary"].items()}
    return found


def _line(row: dict[str, Any], steps: int) -> str:
    if row["step"] < 0:
        return f"before RL: success {row['eval_success']:.1%} on held-out seeds"
    parts = [f"step {row['step'] + 1}/{steps}", f"success {row['success']:.1%}", f"return {row['return']:.3f}"]
    parts.append(f"turns {row['turns_per_episode']:.1f}")
    if "entropy" in row:
        parts.append(f"entropy {row['entropy']:.2f}")
    if not row.get("signal", 1.0):
        parts.append("no learning signal")
    if "eval_success" in row:
        parts.append(f"held out {row['eval_success']:.1%}")
    parts.append(f"{row['seconds_sampling']:.1f}+{row['seconds_learning']:.1f} s")
    return ", ".join(parts)

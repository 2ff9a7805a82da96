"""Train on Palestra environments with TRL's GRPOTrainer.

    from palestra.integrations.trl import EnvRollout, env_reward, task_dataset

    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=env_reward,
        train_dataset=task_dataset("game:GuessTheNumber-v0-easy", tasks=256),
        rollout_func=EnvRollout(max_tokens=32),
        args=GRPOConfig(...),
    )
    trainer.train()

The rollout plays whole episodes with the trainer's model. A completion holds all turns; the environment's tokens are
masked. `env_tool` makes an environment available through TRL's `environment_factory` instead.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from palestra.agents.chat import ChatAgent
from palestra.engines import LocalEngine
from palestra.errors import BadValue, EnvFailed
from palestra.integrations.episodes import task_seeds, token_row
from palestra.optional import require
from palestra.registry import EnvFactory, make
from palestra.rollout import collect
from palestra.rollout.types import Task, Trajectory
from palestra.types import text_of

__all__ = ["EnvRollout", "env_reward", "env_tool", "task_dataset"]


def task_dataset(env: str | Sequence[str], tasks: int, *, seed: int = 0, **kwargs: Any) -> Any:
    """Return a `datasets.Dataset` with one row per task, for `train_dataset` or `eval_dataset`.

    With several environments, the tasks alternate between them. `kwargs` are passed to `palestra.make`; pass
    `split="train"` and `split="test"` to train and evaluate on different tasks.
    """
    rows = [{"env": name, "seed": task, "kwargs": kwargs} for name, task in task_seeds(env, tasks, seed)]
    datasets = require("datasets", extra="data")
    return datasets.Dataset.from_dict({"prompt": [json.dumps(row) for row in rows]})


def env_reward(prompts: Sequence[Any], env_reward: Sequence[float | None], **_: Any) -> list[float | None]:  # noqa: ARG001
    """Return the sum of each episode's rewards, for `reward_funcs`."""
    return list(env_reward)


class EnvRollout:
    """TRL `rollout_func`: play one episode per prompt with the trainer's model.

    `agent` options are those of `palestra.agents.ChatAgent`; `rollout` options are those of `palestra.rollout.collect`,
    for example `{"env_backend": "process", "step_timeout": 10}`. An episode that fails is replayed up to `refills`
    times, so that the batch keeps its size. One that still fails has the reward None, which TRL excludes from the
    group's baseline.
    """

    def __init__(
        self,
        *,
        max_tokens: int = 512,
        temperature: float | None = None,
        refills: int = 3,
        rollout: dict[str, Any] | None = None,
        **agent: Any,
    ) -> None:
        self.agent_options = {"keep_thinking": True, "max_tokens": max_tokens, **agent}
        self.temperature = temperature
        self.refills = refills
        self.rollout_options = dict(rollout or {})
        self._engine: LocalEngine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls = 0

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Return token ids, log-probabilities, the mask of sampled tokens and the rewards, one per prompt."""
        self._calls += 1
        trajectories = self._run(self._play([_task(prompt) for prompt in prompts], trainer))
        finished = next((item for item in trajectories if item is not None), None)
        if finished is None:
            raise EnvFailed("no episode finished; see the log for the failures")
        rows = [token_row(finished if item is None else item) for item in trajectories]
        return {
            "prompt_ids": [row.prompt_ids for row in rows],
            "completion_ids": [row.completion_ids for row in rows],
            "logprobs": [row.logprobs for row in rows],
            "env_mask": [row.mask for row in rows],
            "env_reward": [None if item is None else item.total_reward for item in trajectories],
            "env_success": [None if item is None else bool(item.success) for item in trajectories],
            "env_turns": [0 if item is None else len(item.turns) for item in trajectories],
        }

    async def _play(self, tasks: list[dict[str, Any]], trainer: Any) -> list[Trajectory | None]:
        agent = await self._agent(trainer)
        done: list[Trajectory | None] = [None] * len(tasks)
        for attempt in range(self.refills + 1):
            missing = [index for index, item in enumerate(done) if item is None]
            if not missing:
                break
            # Episodes with the same prompt are a group and share a seed; the member selects the sampling seed.
            wanted = [
                Task(
                    env_id=tasks[index]["env"],
                    seed=tasks[index]["seed"],
                    kwargs=tasks[index]["kwargs"],
                    group=self._calls,
                    member=index + attempt * len(tasks),
                    meta={"index": index},
                )
                for index in missing
            ]
            result = await collect(agent, wanted, concurrency=len(wanted), **self.rollout_options)
            for trajectory in result.trajectories:
                done[trajectory.meta["index"]] = trajectory
        return done

    async def _agent(self, trainer: Any) -> ChatAgent:
        model = trainer.accelerator.unwrap_model(trainer.model)
        if self._engine is None or self._engine.model is not model:
            self._engine = LocalEngine(model, tokenizer=trainer.processing_class)
        else:
            async with self._engine.paused():  # the trainer has updated the weights in place
                await self._engine.publish(None, self._engine.version + 1)
        temperature = trainer.args.temperature if self.temperature is None else self.temperature
        return ChatAgent(self._engine, temperature=temperature, **self.agent_options)

    def _run(self, coroutine: Any) -> Any:
        """Run a coroutine on this object's event loop, which runs in a thread so that notebooks can call it."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="palestra-trl", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def env_tool(env: str, **kwargs: Any) -> Callable[[], Any]:
    """Return a factory for TRL's `environment_factory`: the model acts by calling the `act` tool.

    The dataset's `seed` column selects the task.
    """
    EnvFactory.of(env)

    class PalestraEnvironment:
        """A Palestra environment whose actions are tool calls."""

        def __init__(self) -> None:
            self._env = make(env, **kwargs)
            self._reward = 0.0
            self._over = True

        def reset(self, seed: int | None = None, **_: Any) -> str:
            observation, _info = self._env.reset(seed=seed)
            self._reward = 0.0
            self._over = False
            return text_of(observation)

        def act(self, action: str) -> str:
            """
            Take one action in the environment.

            Args:
                action: The action, in the format that the task describes.

            Returns:
                The observation after the action.
            """
            if self._over:
                return "The episode is over."
            step = self._env.step(action)
            self._reward += step.reward
            self._over = step.terminated or step.truncated
            return text_of(step.observation)

        def get_reward(self) -> float:
            return self._reward

    return PalestraEnvironment


def _task(prompt: Any) -> dict[str, Any]:
    """Read the task from a prompt in a `task_dataset`."""
    text = prompt[-1]["content"] if isinstance(prompt, list) else prompt
    try:
        task = json.loads(text)
        return {"env": task["env"], "seed": int(task["seed"]), "kwargs": task["kwargs"]}
    except (ValueError, TypeError, KeyError) as err:
        raise BadValue(f"the prompt is not a task; build the dataset with task_dataset(...), got {text!r}") from err

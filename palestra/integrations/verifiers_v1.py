"""Use Palestra environments in verifiers 0.4 (its v1 interface) and prime-rl.

verifiers imports a taskset by the name of a top-level module, so create one, for example `palestra_env.py`:

    from palestra.integrations.verifiers_v1 import *
    from palestra.integrations.verifiers_v1 import __all__

and run it: `vf-eval palestra_env --env.taskset.env game:Wordle-v0-easy --env.taskset.tasks 20 ...`. The environment's
prompt is the task's prompt, its observations are the user's messages, and the reward is the sum of its rewards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from palestra.integrations.episodes import task_seeds
from palestra.optional import require
from palestra.registry import make
from palestra.types import finite_reward, text_of

if TYPE_CHECKING:
    import verifiers.v1 as vf
else:
    vf = require("verifiers.v1", extra="verifiers")

__all__ = ["PalestraEnv", "PalestraEnvConfig", "PalestraTask", "PalestraTaskset", "PalestraTasksetConfig"]


class PalestraTasksetConfig(vf.TasksetConfig):
    """Options of the taskset."""

    env: str = "game:GuessTheNumber-v0-easy"
    """Name of the Palestra environment."""
    tasks: int = 100
    """Number of tasks."""
    seed: int = 0
    """Seed from which the seeds of the tasks are derived."""
    env_kwargs: dict[str, Any] = {}  # noqa: RUF012  # pydantic copies the default
    """Keyword arguments for `palestra.make`."""


class PalestraData(vf.TaskData):
    """The environment and the seed that reproduce a task."""

    info: dict[str, Any]


class PalestraTask(vf.Task[PalestraData, vf.State, vf.TaskConfig]):
    """One task of an environment."""


class PalestraTaskset(vf.Taskset[PalestraTask, PalestraTasksetConfig]):
    """Tasks of one environment."""

    def load(self) -> Iterator[PalestraTask]:
        config = self.config
        for name, seed in task_seeds(config.env, config.tasks, config.seed):
            env = make(name, **config.env_kwargs)
            try:
                observation, _ = env.reset(seed=seed)
            finally:
                env.close()
            data = PalestraData(
                name=f"{name}#{seed}",
                prompt=text_of(observation),
                info={"env": name, "seed": seed, "env_kwargs": config.env_kwargs},
            )
            yield PalestraTask(data, config.task)


class PalestraEnvConfig(vf.EnvConfig):
    """Options of the environment: the player is the model that is evaluated or trained.

    The program that sends the requests runs on this machine, because the agent cannot execute code.
    """

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class PalestraEnv(vf.Env[PalestraEnvConfig]):
    """Plays one episode per task. A failure of the environment fails the episode; it is not a reward of 0."""

    async def run(self, task: Any, agents: Any) -> None:
        info = task.data.info
        env = make(info["env"], **info["env_kwargs"])
        rewards: list[float] = []
        success = False
        try:
            await env.areset(seed=info["seed"])
            async with agents.player.interaction(task) as interaction:
                segment = await interaction.turn()  # the task's prompt is the first observation
                while not segment.terminated:
                    step = await env.astep(segment.last_reply)
                    rewards.append(finite_reward(step.reward))
                    if step.terminated or step.truncated:
                        success = bool(step.info.get("success", step.terminated and step.reward > 0))
                        break
                    segment = await interaction.turn(text_of(step.observation))
        finally:
            env.close()
        trace = interaction.trace
        trace.record_reward("env_reward", sum(rewards), 1.0)
        trace.record_metric("env_success", float(success))

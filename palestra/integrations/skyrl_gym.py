"""Use Palestra environments in SkyRL as `skyrl_gym` text environments.

    import skyrl_gym
    from palestra.integrations.skyrl_gym import register_all

    register_all()
    env = skyrl_gym.make("palestra", extras={"env": "game:GuessTheNumber-v0-easy", "seed": 1})

The `palestra` id creates any environment by name; each other id creates one environment. In a SkyRL dataset, the
columns `env` and `seed` contain the name and the task's seed, and `env_class` is `palestra`; `task_rows` creates rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue
from palestra.integrations.episodes import task_seeds
from palestra.optional import require
from palestra.registry import list_envs, make
from palestra.types import text_of

if TYPE_CHECKING:
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv
else:
    skyrl_gym = require("skyrl_gym", extra="skyrl")
    from skyrl_gym.envs.base_text_env import BaseTextEnv

__all__ = ["PalestraEnv", "register_all", "task_rows"]

ID = "palestra"


class PalestraEnv(BaseTextEnv):
    """A Palestra environment as a SkyRL text environment.

    `extras`, which SkyRL fills with a row of the dataset, contains the name of the environment (`env`), the task's seed
    (`seed`) and optionally keyword arguments (`env_kwargs`). The environment's prompt is the last message of the
    conversation; the dataset's prompt comes before it.
    """

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None, env: str | None = None) -> None:
        super().__init__()
        settings = {**dict(env_config or {}), **dict(extras or {})}
        name = env or settings.get("env")
        if not name:
            raise BadValue("the dataset's rows need a column 'env' with the name of an environment")
        self.name = str(name)
        self.seed = settings.get("seed")
        self._env = make(self.name, **dict(settings.get("env_kwargs") or {}))
        self._metrics: dict[str, Any] = {}
        self._reward = 0.0
        self.max_turns = settings.get("max_turns") or self._env.max_turns or 1_000_000

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        seed = None if self.seed is None else int(self.seed)
        observation, info = self._env.reset(seed=seed)
        self.turns, self._reward = 0, 0.0
        return [*prompt, {"role": "user", "content": text_of(observation)}], {"seed": info.get("seed")}

    def step(self, action: str) -> dict[str, Any]:
        self.turns += 1
        step = self._env.step(action)
        self._reward += step.reward
        done = step.terminated or step.truncated or self.turns >= self.max_turns
        if done:
            success = bool(step.info.get("success"))
            self._metrics = {"success": float(success), "turns": self.turns, "episode_reward": self._reward}
        observations = [] if done else [{"role": "user", "content": text_of(step.observation)}]
        return {"observations": observations, "reward": step.reward, "done": done, "metadata": dict(step.info)}

    def get_metrics(self) -> dict[str, Any]:
        return dict(self._metrics)

    def close(self) -> None:
        self._env.close()


def register_all(family: str = "") -> list[str]:
    """Register `palestra`, and `palestra/ID` for every id that starts with `family`; return the new ids."""
    target = f"{PalestraEnv.__module__}:{PalestraEnv.__qualname__}"
    wanted: list[tuple[str, dict[str, Any]]] = [(ID, {})]
    wanted += [(f"{ID}/{env_id}", {"env": env_id}) for env_id in list_envs() if env_id.startswith(family)]
    added = []
    for env_id, kwargs in wanted:
        if env_id not in skyrl_gym.registry:
            skyrl_gym.register(id=env_id, entry_point=target, kwargs=kwargs)
            added.append(env_id)
    return added


def task_rows(env: str, tasks: int, *, seed: int = 0, **env_kwargs: Any) -> list[dict[str, Any]]:
    """Return rows for a SkyRL dataset, one per task; write them with `datasets.Dataset.from_list(...).to_parquet`."""
    return [
        {"prompt": [], "env_class": ID, "env": name, "seed": task, "env_kwargs": env_kwargs}
        for name, task in task_seeds(env, tasks, seed)
    ]

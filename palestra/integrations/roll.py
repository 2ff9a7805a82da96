"""Train on Palestra environments with ROLL, as an environment in its agentic pipeline.

In ROLL's configuration, select the environment and its manager:

    custom_envs:
      wordle:
        env_type: palestra
        env_manager_cls: palestra.integrations.roll.PalestraEnvManager
        env_config: {env: "game:Wordle-v0-easy", split: train}   # keyword arguments of palestra.make
        max_steps: 8
        max_tokens_per_step: 128
        agent_system_template: "Play well."
        agent_template: "{observation}"

ROLL's TrajEnvManager runs the loop of model and environment and masks the environment's tokens. The score of an episode
is the sum of the environment's rewards.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from palestra.core import Env
from palestra.errors import BadValue, EnvFailed, UsageError
from palestra.optional import require
from palestra.registry import make
from palestra.types import text_of

if TYPE_CHECKING:
    import gem
    from roll.pipeline.agentic.env_manager.base_env_manager import RolloutCache
    from roll.pipeline.agentic.env_manager.traj_env_manager import TrajEnvManager
else:
    gem = require("gem", command="pip install gem-llm==0.0.4")
    require("roll", command="pip install git+https://github.com/alibaba/ROLL")
    from roll.pipeline.agentic.env_manager.base_env_manager import RolloutCache
    from roll.pipeline.agentic.env_manager.traj_env_manager import TrajEnvManager

__all__ = ["PalestraEnv", "PalestraEnvManager"]

ID = "palestra"
_AGGREGATION = {"success": "last", "action_is_valid": "mean"}  # of the metrics over the turns of an episode


class PalestraEnv(gem.Env):
    """The environment named `env`, created with `kwargs`, in GEM's interface and with the metrics that ROLL reports."""

    def __init__(self, env: str = "", **kwargs: Any) -> None:
        if not env:
            raise BadValue("env_config needs 'env' with the name of an environment")
        self.special_tokens: tuple[str, ...] = ()  # removed from the end of a reply
        self._env: Env = make(env, **kwargs)

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        observation, _ = self._call("reset", seed=seed)
        return text_of(observation), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        step = self._call("step", _without_end(action, self.special_tokens))
        metrics = {"success": bool(step.info.get("success")), "action_is_valid": "invalid" not in step.info}
        info = {"metrics": metrics, "metrics_agg_mode": _AGGREGATION}
        return text_of(step.observation), step.reward, step.terminated, step.truncated, info

    def sample_random_action(self) -> str:
        return self._env.sample_random_action()

    def close(self) -> None:
        self._env.close()

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(self._env, method)(*args, **kwargs)
        except UsageError:
            raise
        except Exception as err:
            raise EnvFailed(f"{method} failed: {type(err).__name__}: {err}") from err


class PalestraEnvManager(TrajEnvManager):
    """Environment manager that plays a failed episode again, up to `retries` times; then EnvFailed is raised.

    ROLL needs an episode for each environment in a group, and a failure must not count as a reward. Set `retries` in
    the entry of `custom_envs` (default 2).
    """

    env: PalestraEnv
    rollout_cache: RolloutCache

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.env.special_tokens = tuple(self.tokenizer.all_special_tokens)
        self.retries = int(self.env_config.get("retries", 2))
        self._failures = 0

    def reset(self) -> RolloutCache | None:
        self._failures = 0
        try:
            return super().reset()
        except EnvFailed as err:
            return self._restart(err)

    def step(self, llm_output: Any) -> RolloutCache:
        try:
            return super().step(llm_output)
        except EnvFailed as err:
            return self._restart(err)

    def _restart(self, error: EnvFailed) -> RolloutCache:
        """Start the current episode again."""
        self._failures += 1
        if self._failures > self.retries:
            raise error
        self.logger.warning(f"episode {self.episode_id} is played again: {error}")
        config = self.env_config
        cache = RolloutCache(env_id=config["env_id"], group_id=config["group_id"], tag=config["tag"])
        try:
            with self.thread_lock, self.env_step_limiter:
                observation, info = self.env.reset(seed=self.group_seed + self.episode_id)
        except EnvFailed as err:
            return self._restart(err)
        cache.history.append({"observation": observation, "actions_left": config.max_steps, "messages": None, **info})
        self.rollout_cache = cache
        return cache


def _without_end(reply: str, tokens: Iterable[str]) -> str:
    """Remove special tokens from the end of a reply."""
    while True:
        token = next((token for token in tokens if token and reply.endswith(token)), None)
        if token is None:
            return reply
        reply = reply.removesuffix(token)


gem.register(ID, entry_point=f"{__name__}:{PalestraEnv.__name__}")

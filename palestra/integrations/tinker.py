"""Train on Palestra environments with tinker-cookbook.

    from palestra.integrations.tinker import PalestraDatasetBuilder

    config = tinker_cookbook.rl.train.Config(
        model_name="Qwen/Qwen3-8B",
        dataset_builder=PalestraDatasetBuilder(
            env="game:GuessTheNumber-v0-easy", model_name="Qwen/Qwen3-8B", env_kwargs={"split": "train"}
        ),
        ...
    )
    asyncio.run(tinker_cookbook.rl.train.main(config))

Prompts are created with the tokenizer's chat template, and each prompt extends the previous prompt and reply, so that
an episode is one training sequence. `palestra.integrations.tinker_local` trains without the Tinker service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue
from palestra.integrations.episodes import SteppedEpisode, task_seeds
from palestra.optional import require

if TYPE_CHECKING:
    import chz
    import tinker
    from tinker_cookbook.rl.types import ActionExtra, Env, EnvGroupBuilder, RLDataset, RLDatasetBuilder, StepResult
    from tinker_cookbook.tokenizer_utils import get_tokenizer
else:
    chz, tinker = require("chz", extra="tinker"), require("tinker", extra="tinker")
    require("tinker_cookbook", extra="tinker")
    from tinker_cookbook.rl.types import ActionExtra, Env, EnvGroupBuilder, RLDataset, RLDatasetBuilder, StepResult
    from tinker_cookbook.tokenizer_utils import get_tokenizer

__all__ = ["PalestraDataset", "PalestraDatasetBuilder", "PalestraEnv", "PalestraGroupBuilder"]


class PalestraEnv(Env):
    """One episode of a Palestra environment at the token level.

    The reward of the last step is the sum of the environment's rewards, which is what tinker-cookbook trains on.
    """

    def __init__(
        self,
        env: str,
        seed: int,
        tokenizer: Any,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        agent: Mapping[str, Any] | None = None,
    ) -> None:
        self.example_id = f"{env}#{seed}"
        self._episode = SteppedEpisode(tokenizer, env, seed=seed, kwargs=env_kwargs, **dict(agent or {}))

    async def initial_observation(self) -> tuple[tinker.ModelInput, list[int]]:
        prompt = await self._episode.start()
        if prompt is None:
            raise BadValue("the first prompt does not fit the context; increase max_context in `agent`")
        return tinker.ModelInput.from_ints(prompt), list(self._episode.stop_ids)

    async def step(self, action: list[int], *, extra: ActionExtra | None = None) -> StepResult:
        del extra  # a reply that was cut at the maximum length goes to the environment like any other
        prompt = await self._episode.reply(action)
        if prompt is not None:
            return StepResult(
                reward=0.0,
                episode_done=False,
                next_observation=tinker.ModelInput.from_ints(prompt),
                next_stop_condition=list(self._episode.stop_ids),
            )
        trajectory = self._episode.trajectory
        if trajectory is None:
            raise BadValue("the episode is over; create a new environment for each episode")
        return StepResult(
            reward=trajectory.total_reward,
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=list(self._episode.stop_ids),
            metrics={"success": float(bool(trajectory.success)), "turns": len(trajectory.turns)},
        )

    async def aclose(self) -> None:
        """Stop an unfinished episode. Idempotent."""
        await self._episode.aclose()


@dataclass
class PalestraGroupBuilder(EnvGroupBuilder):
    """Creates the environments of a group, which play the same task."""

    env: str
    seed: int
    model_name: str  # selects the tokenizer
    group_size: int = 8
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    agent: Mapping[str, Any] = field(default_factory=dict)  # options of `palestra.agents.ChatAgent`, such as `system`
    _envs: list[PalestraEnv] = field(default_factory=list, init=False, repr=False)

    async def make_envs(self) -> Sequence[PalestraEnv]:
        tokenizer = get_tokenizer(self.model_name)
        self._envs = [
            PalestraEnv(self.env, self.seed, tokenizer, env_kwargs=self.env_kwargs, agent=self.agent)
            for _ in range(self.group_size)
        ]
        return self._envs

    async def cleanup(self) -> None:
        for env in self._envs:
            await env.aclose()
        self._envs = []

    def logging_tags(self) -> list[str]:
        return [self.env]


@dataclass
class PalestraDataset(RLDataset):
    """Batches of group builders, one per task."""

    builders: list[PalestraGroupBuilder]
    batch_size: int

    def get_batch(self, index: int) -> Sequence[PalestraGroupBuilder]:
        return self.builders[index * self.batch_size : (index + 1) * self.batch_size]

    def __len__(self) -> int:
        return len(self.builders) // self.batch_size


@chz.chz
class PalestraDatasetBuilder(RLDatasetBuilder):
    """Options of a dataset, for `dataset_builder` in tinker-cookbook's training configuration."""

    env: str
    model_name: str  # selects the tokenizer
    tasks: int = 1024
    batch_size: int = 16  # tasks per training step
    group_size: int = 8  # episodes per task
    seed: int = 0
    env_kwargs: Mapping[str, Any] = chz.field(default_factory=dict)
    agent: Mapping[str, Any] = chz.field(default_factory=dict)

    async def __call__(self) -> tuple[PalestraDataset, None]:
        builders = [
            PalestraGroupBuilder(name, seed, self.model_name, self.group_size, self.env_kwargs, self.agent)
            for name, seed in task_seeds(self.env, self.tasks, self.seed)
        ]
        return PalestraDataset(builders, self.batch_size), None

"""Train on Palestra environments with verl, as an agent loop.

    from palestra.integrations.verl import write_dataset

    write_dataset("train.parquet", "game:GuessTheNumber-v0-easy", tasks=1000, split="train")

The rows select the agent loop `palestra`. verl finds it through a file with agent loops, to which
`actor_rollout_ref.rollout.agent.agent_loop_config_path` points:

    - name: palestra
      _target_: palestra.integrations.verl.PalestraAgentLoop
      max_tokens: 128                      # per turn

The loop plays a whole episode with verl's server. The response contains all turns, and the environment's tokens are
masked. The reward is the sum of the environment's rewards.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.engines.base import Sampling
from palestra.errors import BadValue
from palestra.integrations.episodes import FrameworkEngine, play_episode, task_seeds, token_row
from palestra.optional import require

if TYPE_CHECKING:
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
else:
    require("verl", extra="verl")
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

__all__ = ["PalestraAgentLoop", "dataset_rows", "write_dataset"]

NAME = "palestra"


@register(NAME)
class PalestraAgentLoop(AgentLoopBase):
    """Agent loop that plays one episode of the environment named in the dataset's row.

    `agent` options are those of `palestra.agents.ChatAgent`, such as `system` and `style`; `rollout` options are those
    of `palestra.rollout.collect`. An episode whose attempts all fail raises EnvFailed.
    """

    def __init__(
        self,
        *args: Any,
        max_tokens: int = 512,
        agent: Mapping[str, Any] | None = None,
        rollout: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.max_tokens = max_tokens
        self.agent_options = dict(agent or {})
        self.rollout_options = dict(rollout or {})

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        task = _task(kwargs)
        request = (
            uuid.uuid4().hex
        )  # verl sends requests with the same id to the same server, which has the prefix cached
        started: dict[str, Any] = {}

        async def sample(prompt: list[int], sampling: Sampling) -> tuple[Sequence[int], Sequence[float]]:
            params = {**sampling_params, "logprobs": True, "max_tokens": sampling.max_tokens}
            if sampling.stop_ids:
                params["stop_token_ids"] = list(sampling.stop_ids)
            output = await self.server_manager.generate(request_id=request, prompt_ids=prompt, sampling_params=params)
            started.update(output.extra_fields or {})
            return output.token_ids, output.log_probs

        config = self.rollout_config
        engine = FrameworkEngine(sample, self.tokenizer, max_context=config.prompt_length + config.response_length)
        options = {"template_options": dict(self.apply_chat_template_kwargs or {}), **self.agent_options}
        trajectory = await play_episode(
            engine,
            task["env"],
            seed=int(task["seed"]),
            kwargs=task.get("env_kwargs"),
            rollout=self.rollout_options,
            max_tokens=self.max_tokens,
            **options,
        )
        row = token_row(trajectory)
        if len(row.prompt_ids) > config.prompt_length:
            raise BadValue(
                f"the prompt of {task['env']} has {len(row.prompt_ids)} tokens, but rollout.prompt_length is "
                f"{config.prompt_length}; increase it"
            )
        size = config.response_length
        return AgentLoopOutput(
            prompt_ids=row.prompt_ids,
            response_ids=row.completion_ids[:size],
            response_mask=row.mask[:size],
            response_logprobs=row.logprobs[:size],
            reward_score=trajectory.total_reward,
            num_turns=2 * len(trajectory.turns),
            metrics={
                "generate_sequences": sum(turn.agent_seconds for turn in trajectory.turns),
                "tool_calls": sum(turn.env_seconds for turn in trajectory.turns),
            },
            extra_fields={
                **started,
                "turn_scores": trajectory.rewards,
                "tool_rewards": [],
                "reward_extra_info": {"success": float(bool(trajectory.success))},
            },
        )


def dataset_rows(env: str | Sequence[str], tasks: int, *, seed: int = 0, **env_kwargs: Any) -> list[dict[str, Any]]:
    """Return rows for verl's RLHFDataset, one per task."""
    return [
        {
            "data_source": name,
            "agent_name": NAME,
            # verl requires a prompt and filters the rows by its length; the loop uses the environment's prompt.
            "prompt": [{"role": "user", "content": f"Play {name}."}],
            "ability": "agent",
            "reward_model": {"style": "env", "ground_truth": ""},
            "extra_info": {"index": index, "env": name, "seed": task, "env_kwargs": env_kwargs or None},
        }
        for index, (name, task) in enumerate(task_seeds(env, tasks, seed))
    ]


def write_dataset(path: str | Path, env: str | Sequence[str], tasks: int, *, seed: int = 0, **env_kwargs: Any) -> Path:
    """Write the rows to a Parquet file for `data.train_files` or `data.val_files`."""
    datasets = require("datasets", extra="data")
    datasets.Dataset.from_list(dataset_rows(env, tasks, seed=seed, **env_kwargs)).to_parquet(str(path))
    return Path(path)


def _task(row: Mapping[str, Any]) -> Mapping[str, Any]:
    info = row.get("extra_info")
    if not isinstance(info, Mapping) or "env" not in info or "seed" not in info:
        raise BadValue("the dataset's rows need extra_info with 'env' and 'seed'; create them with write_dataset(...)")
    return info

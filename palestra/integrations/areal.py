"""Train on Palestra environments with AReaL, as a rollout workflow.

    workflow = PalestraWorkflow(tokenizer, gconfig=config.gconfig)
    trainer.train(workflow=workflow, ...)

Each item of the dataset is a row of `dataset_rows`. The workflow plays a whole episode with AReaL's inference engine;
the environment's tokens are masked, and the reward is the sum of the environment's rewards.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from palestra.engines.base import Sampling
from palestra.errors import EnvFailed
from palestra.integrations.episodes import FrameworkEngine, play_episode, task_seeds, token_row
from palestra.optional import require

if TYPE_CHECKING:
    import torch
    from areal.api import InferenceEngine, ModelRequest, RolloutWorkflow
    from areal.api.cli_args import GenerationHyperparameters
else:
    torch = require("torch", extra="hf")
    require("areal", extra="areal")
    from areal.api import InferenceEngine, ModelRequest, RolloutWorkflow
    from areal.api.cli_args import GenerationHyperparameters

__all__ = ["PalestraWorkflow", "dataset_rows"]


class PalestraWorkflow(RolloutWorkflow):
    """Workflow that plays one episode per item.

    `agent` options are those of `palestra.agents.ChatAgent`, `rollout` options those of `palestra.rollout.collect`. An
    episode whose attempts all fail is rejected: AReaL excludes it and requests another one.
    """

    def __init__(
        self,
        tokenizer: Any,
        gconfig: GenerationHyperparameters,
        *,
        rollout: Mapping[str, Any] | None = None,
        **agent: Any,
    ) -> None:
        self.tokenizer = tokenizer
        self.gconfig = gconfig.new_with_stop_and_pad_token_ids(tokenizer)
        self.rollout_options = dict(rollout or {})
        self.agent_options = agent

    async def arun_episode(self, engine: InferenceEngine, data: dict[str, Any]) -> dict[str, Any] | None:
        versions: list[int] = []  # version of the weights per sampled token
        request = uuid.uuid4().hex

        async def sample(prompt: list[int], sampling: Sampling) -> tuple[Sequence[int], Sequence[float]]:
            stop_ids = sorted({*self.gconfig.stop_token_ids, *sampling.stop_ids})
            config = self.gconfig.new(n_samples=1, stop_token_ids=stop_ids, max_new_tokens=sampling.max_tokens)
            reply = await engine.agenerate(
                ModelRequest(rid=request, input_ids=prompt, gconfig=config, tokenizer=self.tokenizer)
            )
            versions.extend(reply.output_versions)
            return reply.output_tokens, reply.output_logprobs

        options = {"max_tokens": self.gconfig.max_new_tokens, **self.agent_options}
        try:
            trajectory = await play_episode(
                FrameworkEngine(sample, self.tokenizer, max_context=self.gconfig.max_tokens),
                data["env"],
                seed=int(data["seed"]),
                kwargs=data.get("env_kwargs"),
                rollout={**self.rollout_options, "retries": 0},
                **options,
            )
        except EnvFailed:
            return None
        row = token_row(trajectory)
        ids = row.prompt_ids + row.completion_ids
        mask = [0] * len(row.prompt_ids) + row.mask
        sampled = iter(versions)
        columns = {
            "input_ids": torch.tensor(ids, dtype=torch.int32),
            "logprobs": torch.tensor([0.0] * len(row.prompt_ids) + row.logprobs, dtype=torch.float32),
            "loss_mask": torch.tensor(mask, dtype=torch.int32),
            "versions": torch.tensor([next(sampled) if bit else -1 for bit in mask], dtype=torch.int32),
            "rewards": torch.tensor(trajectory.total_reward, dtype=torch.float32),
            "attention_mask": torch.ones(len(ids), dtype=torch.bool),
        }
        return {name: column.unsqueeze(0) for name, column in columns.items()}


def dataset_rows(env: str | Sequence[str], tasks: int, *, seed: int = 0, **env_kwargs: Any) -> list[dict[str, Any]]:
    """Return items for AReaL's data loader, one per task."""
    return [{"env": name, "seed": task, "env_kwargs": env_kwargs} for name, task in task_seeds(env, tasks, seed)]

"""Train on Palestra environments with OpenRLHF, as an agent executor.

    from palestra.integrations.openrlhf import write_dataset

    write_dataset("train.jsonl", "game:GuessTheNumber-v0-easy", tasks=1000, split="train")

OpenRLHF loads the class `AgentExecutor` from the file that `--train.agent_func_path` names. It can be this file, or one
that sets options:

    from palestra.integrations.openrlhf import PalestraExecutor

    class AgentExecutor(PalestraExecutor):
        def __init__(self):
            super().__init__(max_tokens=128)

OpenRLHF's MultiTurnAgentExecutor runs the loop of model and environment and records the ranges of the sampled tokens;
all other tokens are masked. The reward is the sum of the environment's rewards.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue, EnvFailed
from palestra.integrations.episodes import SteppedEpisode, env_tokens, task_seeds, write_rows
from palestra.optional import require

if TYPE_CHECKING:
    import torch
    from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor
else:
    torch = require("torch", extra="hf")
    require("openrlhf", command="pip install git+https://github.com/OpenRLHF/OpenRLHF")
    from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor

__all__ = ["AgentExecutor", "PalestraExecutor", "PalestraInstance", "dataset_rows", "write_dataset"]


class TurnEngine:
    """vLLM engine that limits the length of a reply and stores it for the environment."""

    def __init__(self, engine: Any, episode: SteppedEpisode, max_tokens: int | None) -> None:
        self.engine = engine
        self.episode = episode
        self.max_tokens = max_tokens
        self.reply: list[int] = []
        self.logprobs: list[float] | None = None

    async def generate(self, prompt_ids: list[int], sampling_params: Any, **options: Any) -> Any:
        if self.max_tokens is not None:  # the executor allows replies that fill the remaining context
            sampling_params.max_tokens = min(sampling_params.max_tokens, self.max_tokens)
        stop_ids = {*(sampling_params.stop_token_ids or ()), *self.episode.stop_ids}
        sampling_params.stop_token_ids = sorted(stop_ids)
        output = await self.engine.generate(prompt_ids, sampling_params, **options)
        sampled = output.outputs[0]
        self.reply = [int(token) for token in sampled.token_ids]
        self.logprobs = None
        if sampled.logprobs is not None:
            pairs = zip(self.reply, sampled.logprobs, strict=True)
            self.logprobs = [float(candidates[token].logprob) for token, candidates in pairs]
        return output


class PalestraInstance(AgentInstanceBase):
    """Agent instance that plays one episode. The reward of the episode belongs to its last step."""

    def __init__(self, episode: SteppedEpisode, engine: TurnEngine, tokenizer: Any) -> None:
        self.episode = episode
        self.engine = engine
        self.tokenizer = tokenizer
        self.prompt: list[int] = []

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        prompt = await self.episode.start()
        if prompt is None:
            raise BadValue("the first prompt is longer than --data.max_len; increase it")
        self.prompt = prompt
        return {**states, "observation": self._text(prompt)}

    async def step(self, state_dict: dict[str, Any], **_: Any) -> dict[str, Any]:
        reply = self.engine.reply
        prompt = await self.episode.reply(reply, self.engine.logprobs)
        if prompt is not None:
            feedback = env_tokens(self.prompt, reply, prompt)
            self.prompt = prompt
            return {
                "rewards": torch.tensor(0.0),
                "environment_feedback": self._text(feedback),
                "done": False,
                "sampling_params": state_dict["sampling_params"],
            }
        trajectory = self.episode.finished()
        success = trajectory.success
        return {
            "rewards": torch.tensor(trajectory.total_reward),
            "scores": trajectory.total_reward if success is None else float(success),
            "environment_feedback": "",
            "done": True,
            "extra_logs": {"turns": float(len(trajectory.turns)), "success": float(bool(success))},
        }

    def _text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))


class PalestraExecutor(MultiTurnAgentExecutor):
    """Executor that plays one episode of the environment in the dataset's label.

    `max_tokens` limits each reply (None: the remaining context). `agent` options are those of
    `palestra.agents.ChatAgent`. A failed episode is played again, up to `retries` times; then EnvFailed is raised,
    because OpenRLHF needs a response for each prompt and a failure must not count as a reward.
    """

    def __init__(self, *, max_tokens: int | None = None, retries: int = 2, **agent: Any) -> None:
        super().__init__(PalestraInstance)
        self.max_tokens = max_tokens
        self.retries = retries
        self.agent_options = agent

    async def execute(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        task = _task(label)
        failures = 0
        while True:
            episode = SteppedEpisode(
                hf_tokenizer,
                task["env"],
                seed=int(task["seed"]),
                kwargs=task.get("env_kwargs"),
                max_context=max_length,
                **self.agent_options,
            )
            engine = TurnEngine(llm_engine, episode, self.max_tokens)
            executor = MultiTurnAgentExecutor(PalestraInstance)
            executor.agent_instance_cls = partial(PalestraInstance, episode, engine, hf_tokenizer)
            sampling = deepcopy(sampling_params)  # the executor changes it
            sampling.max_tokens = 1  # reserve one token for the reply; the executor cuts the prompt to make room
            try:
                response: dict[str, Any] = await executor.execute(
                    prompt, label, sampling, max_length, hf_tokenizer, engine, images
                )
            except EnvFailed:
                failures += 1
                if failures > self.retries:
                    raise
            else:
                return response
            finally:
                await episode.aclose()


class AgentExecutor(PalestraExecutor):
    """The class that OpenRLHF creates if `--train.agent_func_path` names this file."""

    def __init__(self) -> None:
        super().__init__()


def dataset_rows(env: str | Sequence[str], tasks: int, *, seed: int = 0, **env_kwargs: Any) -> list[dict[str, str]]:
    """Return rows for OpenRLHF's PromptDataset, one per task, with the task in the column `label`."""
    return [
        {
            # OpenRLHF requires a prompt; the executor uses the environment's prompt.
            "input": f"Play {name}.",
            "label": json.dumps({"env": name, "seed": task, "env_kwargs": env_kwargs}),
        }
        for name, task in task_seeds(env, tasks, seed)
    ]


def write_dataset(path: str | Path, env: str | Sequence[str], tasks: int, *, seed: int = 0, **env_kwargs: Any) -> Path:
    """Write the rows to a JSON Lines file for `--data.prompt_dataset`."""
    return write_rows(path, dataset_rows(env, tasks, seed=seed, **env_kwargs))


def _task(label: str) -> dict[str, Any]:
    try:
        task = json.loads(label)
        return {"env": task["env"], "seed": task["seed"], "env_kwargs": task.get("env_kwargs")}
    except (KeyError, TypeError, ValueError):
        raise BadValue(
            f"the label must contain JSON with 'env' and 'seed', got {label!r}; create the dataset with "
            "write_dataset(...) and set --data.label_key label"
        ) from None

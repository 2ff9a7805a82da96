"""Train on Palestra environments with RL2, as an environment file.

    from palestra.integrations.rl2 import write_dataset

    write_dataset("train.jsonl", "game:GuessTheNumber-v0-easy", tasks=1000, split="train")

RL2 calls the function `generate` in the file that `rollout.env_path` names. It can be this file, or one that sets
options:

    from palestra.integrations.rl2 import PalestraGenerate

    generate = PalestraGenerate(max_context=8192)

RL2's sample collects the tokens: those of the environment are masked, and the last sampled token has the sum of the
environment's rewards.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue, EnvFailed
from palestra.integrations.episodes import SteppedEpisode, env_tokens, task_seeds, write_rows
from palestra.optional import require

if TYPE_CHECKING:
    from omegaconf import OmegaConf
    from RL2.datasets import Sample, add_env_response, add_llm_response, initialize_state_dict
    from RL2.utils.communication import async_request
else:
    require("RL2", command="pip install git+https://github.com/ChenmienTan/RL2")
    from omegaconf import OmegaConf
    from RL2.datasets import Sample, add_env_response, add_llm_response, initialize_state_dict
    from RL2.utils.communication import async_request

__all__ = ["PalestraGenerate", "dataset_rows", "generate", "write_dataset"]


@dataclass(slots=True)
class OpenEpisode:
    """An episode that is waiting for a reply to `prompt`."""

    episode: SteppedEpisode
    prompt: list[int]


class PalestraGenerate:
    """Function that plays one episode of the environment in a sample's row.

    `max_context` limits an episode in tokens. `agent` options are those of `palestra.agents.ChatAgent`. A failed
    episode is played again, up to `retries` times; then EnvFailed is raised, because RL2 needs all samples in a group
    and a failure must not count as a reward.
    """

    def __init__(self, *, max_context: int | None = None, retries: int = 2, **agent: Any) -> None:
        self.max_context = max_context
        self.retries = retries
        self.agent_options = agent
        self._open: dict[int, OpenEpisode] = {}  # by id of the sample, for rollouts that continue in the next step

    async def __call__(self, config: Any, tokenizer: Any, router_url: str, sample: Sample) -> None:
        if sample.status == Sample.Status.DONE:
            return
        for attempt in range(self.retries + 1):
            try:
                if sample.status == Sample.Status.ABORTED:
                    sample.status = Sample.Status.RUNNING
                else:
                    await self._start(tokenizer, sample)
                await self._play(OmegaConf.to_container(config.sampling_params), tokenizer, router_url, sample)
            except EnvFailed:
                if attempt == self.retries:
                    raise
            finally:
                if sample.status != Sample.Status.ABORTED and (current := self._open.pop(id(sample), None)):
                    await current.episode.aclose()
            if sample.status != Sample.Status.RUNNING:
                return

    async def _start(self, tokenizer: Any, sample: Sample) -> None:
        task = sample.sample
        if "env" not in task or "seed" not in task:
            raise BadValue("the dataset's rows need 'env' and 'seed'; create them with write_dataset(...)")
        episode = SteppedEpisode(
            tokenizer,
            task["env"],
            seed=int(task["seed"]),
            kwargs=json.loads(task.get("env_kwargs") or "{}"),
            max_context=self.max_context,
            **self.agent_options,
        )
        prompt = await episode.start()
        if prompt is None:
            raise BadValue(f"the prompt of {task['env']} is longer than max_context={self.max_context}; increase it")
        self._open[id(sample)] = OpenEpisode(episode, prompt)
        sample.turn = 0
        sample.metrics.clear()
        sample.state_text = tokenizer.decode(prompt, skip_special_tokens=False)
        sample.state_dict = initialize_state_dict(tokenizer, sample.state_text)

    async def _play(self, sampling: dict[str, Any], tokenizer: Any, router_url: str, sample: Sample) -> None:
        current = self._open[id(sample)]
        # RL2 may have sampled the first part of the reply in its previous step.
        start = len(sample.state_dict["states"]) - sample.previous_response_length
        while sample.status == Sample.Status.RUNNING:
            stop_ids = {*(sampling.get("stop_token_ids") or ()), *current.episode.stop_ids}
            params = {
                **sampling,
                "max_new_tokens": sampling["max_new_tokens"] - sample.previous_response_length,
                "stop_token_ids": sorted(stop_ids),
                "no_stop_trim": True,
            }
            request = {"input_ids": sample.state_dict["states"], "sampling_params": params, "return_logprob": True}
            add_llm_response(sample, await async_request(router_url, "generate", json=request))
            if sample.status == Sample.Status.ABORTED:
                return
            reply = sample.state_dict["states"][start:]
            following = await current.episode.reply(reply, sample.state_dict["logps"][start:])
            response: dict[str, Any] = {"reward": 0.0, "done": following is None, "next_state": None}
            if following is not None:
                feedback = tokenizer.decode(env_tokens(current.prompt, reply, following), skip_special_tokens=False)
                response["next_state"] = sample.state_text + sample.action_text + feedback
                current.prompt = following
            else:
                trajectory = current.episode.finished()
                response["reward"] = trajectory.total_reward
                sample.metrics["success"].append(bool(trajectory.success))
            add_env_response(tokenizer, sample, response)
            start = len(sample.state_dict["states"])


generate = PalestraGenerate()


def dataset_rows(env: str | Sequence[str], tasks: int, *, seed: int = 0, **env_kwargs: Any) -> list[dict[str, Any]]:
    """Return rows for RL2's RLDataset, one per task."""
    kwargs = json.dumps(env_kwargs)
    return [{"env": name, "seed": task, "env_kwargs": kwargs} for name, task in task_seeds(env, tasks, seed)]


def write_dataset(path: str | Path, env: str | Sequence[str], tasks: int, *, seed: int = 0, **env_kwargs: Any) -> Path:
    """Write the rows to a JSON Lines file for `rollout.train.path` or `rollout.test.path`."""
    return write_rows(path, dataset_rows(env, tasks, seed=seed, **env_kwargs))

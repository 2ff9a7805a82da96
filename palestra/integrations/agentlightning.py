"""Train on Palestra environments with Agent Lightning (agentlightning).

    import agentlightning as agl
    from palestra.integrations.agentlightning import PalestraAgent, task_rows

    trainer = agl.Trainer(algorithm=agl.VERL(config), n_runners=8)
    trainer.fit(PalestraAgent(), train_dataset=task_rows("game:Wordle-v0-easy", tasks=1000, split="train"))

`TorchAlgorithm` is an Agent Lightning algorithm for small models on one device: it serves the model with Palestra's
engine, and updates it with Palestra's GRPO from the traces in Agent Lightning's store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from palestra.algorithms.losses import Denominators, LossInputs, policy_loss
from palestra.algorithms.normalize import normalize
from palestra.engines import LocalEngine
from palestra.errors import BadValue, EngineFailed
from palestra.integrations.chat_server import ChatServer
from palestra.integrations.episodes import task_seeds
from palestra.optional import require
from palestra.registry import make
from palestra.types import finite_reward, text_of

if TYPE_CHECKING:
    import agentlightning as agl
    import openai
    import torch
else:
    agl = require("agentlightning", extra="agentlightning")
    openai = require("openai", extra="agentlightning")
    torch = require("torch", extra="hf")

__all__ = ["PalestraAgent", "TorchAlgorithm", "task_rows"]


def task_rows(env: str | Sequence[str], tasks: int, *, seed: int = 0, **env_kwargs: Any) -> list[dict[str, Any]]:
    """Return the inputs of the rollouts, one per task."""
    return [{"env": name, "seed": task, "env_kwargs": env_kwargs} for name, task in task_seeds(env, tasks, seed)]


class PalestraAgent(agl.LitAgent[dict[str, Any]]):
    """Agent that plays one episode per rollout with the LLM among the rollout's resources.

    The reward of a rollout is the sum of the environment's rewards. A failure of the environment or of the server
    raises, so that Agent Lightning marks the attempt as failed.
    """

    def __init__(self, *, system: str | None = None) -> None:
        super().__init__()
        self.system = system

    async def rollout_async(self, task: dict[str, Any], resources: agl.NamedResources, rollout: agl.Rollout) -> float:
        llm = _llm(resources)
        attempt: Any = rollout  # runners pass an AttemptedRollout
        messages: list[Any] = [] if self.system is None else [{"role": "system", "content": self.system}]
        env = make(task["env"], **(task.get("env_kwargs") or {}))
        total = 0.0
        try:
            url = llm.get_base_url(attempt.rollout_id, attempt.attempt.attempt_id)
            async with openai.AsyncOpenAI(base_url=url, api_key=llm.api_key or "none") as client:
                observation, _ = await env.areset(seed=task["seed"])
                while True:
                    messages.append({"role": "user", "content": text_of(observation)})
                    completion = await client.chat.completions.create(
                        model=llm.model, messages=messages, **llm.sampling_parameters
                    )
                    reply = completion.choices[0].message.content or ""
                    messages.append({"role": "assistant", "content": reply})
                    step = await env.astep(reply)
                    total += finite_reward(step.reward)
                    observation = step.observation
                    if step.terminated or step.truncated:
                        return total
        finally:
            env.close()


class TorchAlgorithm(agl.Algorithm):
    """Algorithm that samples and trains a transformers model in this process, with GRPO.

    Use it with the `shm` strategy, which runs the algorithm and the runners in one process. Each step plays
    `group_size` rollouts on each of the next `tasks_per_step` tasks and updates the weights once.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        tasks_per_step: int = 4,
        group_size: int = 4,
        learning_rate: float = 1e-5,
        **sampling: Any,
    ) -> None:
        super().__init__()
        if group_size < 2:
            raise BadValue(f"`group_size` must be at least 2, because GRPO compares episodes; got {group_size}")
        self.model = model
        self.tasks_per_step = tasks_per_step
        self.group_size = group_size
        # Agent Lightning's tracer stores the ids and log-probabilities that the server returns.
        self.sampling = {**sampling, "logprobs": True, "extra_body": {"return_token_ids": True}}
        self.engine = LocalEngine(model, tokenizer=tokenizer)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
        self.metrics: list[dict[str, float]] = []  # one entry per step

    async def run(self, train_dataset: Any = None, val_dataset: Any = None) -> None:
        del val_dataset
        if train_dataset is None:
            raise BadValue("TorchAlgorithm needs a train_dataset, such as task_rows(...)")
        tasks = [train_dataset[index] for index in range(len(train_dataset))]
        async with self.engine, ChatServer(self.engine) as server:
            llm = agl.LLM(endpoint=server.url, model=server.model, sampling_parameters=self.sampling)
            resources = await self.get_store().add_resources({"llm": llm})
            for start in range(0, len(tasks), self.tasks_per_step):
                chosen = tasks[start : start + self.tasks_per_step]
                self.metrics.append(await self._step(chosen, resources.resources_id))

    async def _step(self, tasks: Sequence[Any], resources_id: str) -> dict[str, float]:
        store = self.get_store()
        groups = {}  # rollout id -> index of the task
        for index, task in enumerate(tasks):
            for _ in range(self.group_size):
                rollout = await store.enqueue_rollout(input=task, mode="train", resources_id=resources_id)
                groups[rollout.rollout_id] = index
        episodes = []
        for done in await store.wait_for_rollouts(rollout_ids=list(groups)):
            if done.status == "succeeded":
                spans = await store.query_spans(done.rollout_id, attempt_id="latest")
                episodes.append((groups[done.rollout_id], self.get_adapter().adapt(spans)))
        if not episodes:
            raise EngineFailed(f"all {len(groups)} rollouts failed; Agent Lightning's log contains the errors")
        if not all(triplets for _, triplets in episodes):
            raise EngineFailed(
                "Agent Lightning's tracer recorded no requests; use AgentOpsTracer, which traces the `openai` package "
                "only if it is installed in a site-packages folder"
            )
        rewards = [triplets[-1].reward for _, triplets in episodes]
        if None in rewards:
            raise EngineFailed(
                "Agent Lightning's store has no reward for some rollouts; return it from `rollout_async`"
            )
        turns = sum(len(triplets) for _, triplets in episodes)
        scaled, _ = normalize([[reward] for reward in rewards], [group for group, _ in episodes], scale=True)
        rows = [
            (triplet, value) for (_, triplets), (value,) in zip(episodes, scaled, strict=True) for triplet in triplets
        ]
        async with self.engine.paused():
            loss = self._update(rows)
            await self.engine.publish(None, self.engine.version + 1)
        return {
            "reward": sum(rewards) / len(rewards),
            "turns": turns / len(episodes),
            "failed": float(len(groups) - len(episodes)),
            "loss": loss,
        }

    def _update(self, rows: Sequence[tuple[agl.Triplet, float]]) -> float:
        """Update the weights once with the turns in `rows` and their advantages; return the loss."""
        columns = [_tensors(triplet, advantage) for triplet, advantage in rows]
        ids, old, advantages, mask = (
            torch.nn.utils.rnn.pad_sequence(list(column), batch_first=True) for column in zip(*columns, strict=True)
        )
        chosen = self.model(ids).logits[:, :-1].float().log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        inputs = LossInputs(
            logprobs=torch.nn.functional.pad(chosen, (1, 0)), old_logprobs=old, advantages=advantages, mask=mask
        )
        loss = policy_loss(inputs, Denominators.of(mask)).loss
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return float(loss.detach())


def _tensors(triplet: agl.Triplet, advantage: float) -> tuple[torch.Tensor, ...]:
    """Return a turn's ids, log-probabilities of sampling, advantages and mask, with one entry per token."""
    prompt, reply = triplet.prompt["token_ids"], triplet.response["token_ids"]
    logprobs = [item["logprob"] for item in triplet.response["logprobs"]]
    return (
        torch.tensor(prompt + reply),
        torch.tensor([0.0] * len(prompt) + logprobs),
        torch.full((len(prompt) + len(reply),), advantage),
        torch.tensor([False] * len(prompt) + [True] * len(reply)),
    )


def _llm(resources: agl.NamedResources) -> agl.LLM:
    for resource in resources.values():
        if isinstance(resource, agl.LLM):
            return resource
    raise BadValue(f"the rollout's resources must include an LLM; got {sorted(resources)}")

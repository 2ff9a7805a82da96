"""Train on Palestra environments with ART (openpipe-art).

    from palestra.integrations.art import play_trajectory, scenarios

    groups = await art.gather_trajectory_groups(
        art.TrajectoryGroup(play_trajectory(model, scenario, max_tokens=128) for _ in range(8))
        for scenario in scenarios("game:GuessTheNumber-v0-easy", tasks=16, split="train")
    )
    await model.train(groups)

`TorchBackend` is an ART backend for small models on one device: it serves the model with Palestra's engine, and trains
it with ART's own tokenization, advantages and loss.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

from palestra.engines import LocalEngine
from palestra.errors import BadValue
from palestra.integrations.chat_server import ChatServer
from palestra.integrations.episodes import task_seeds
from palestra.optional import require
from palestra.registry import make
from palestra.types import finite_reward, text_of

if TYPE_CHECKING:
    import art
    import torch
else:
    art = require("art", extra="art")
    torch = require("torch", extra="hf")

__all__ = ["TorchBackend", "play_trajectory", "scenarios"]


def scenarios(env: str | Sequence[str], tasks: int, *, seed: int = 0, **env_kwargs: Any) -> list[dict[str, Any]]:
    """Return one scenario per task."""
    return [{"env": name, "seed": task, "env_kwargs": env_kwargs} for name, task in task_seeds(env, tasks, seed)]


async def play_trajectory(
    model: art.Model[Any, Any], scenario: dict[str, Any], *, system: str | None = None, **request: Any
) -> art.Trajectory:
    """Play one episode with the model's OpenAI client.

    The trajectory's reward is the sum of the environment's rewards. `request` contains further fields of the chat
    requests, such as `temperature`. A failure of the environment raises, so that ART excludes the episode.
    """
    client = model.openai_client()
    trajectory = art.Trajectory(metadata={"env": scenario["env"], "seed": scenario["seed"]})
    messages = trajectory.messages_and_choices
    if system is not None:
        messages.append({"role": "system", "content": system})
    env = make(scenario["env"], **(scenario.get("env_kwargs") or {}))
    try:
        observation, _ = await env.areset(seed=scenario["seed"])
        turns = 0
        while True:
            messages.append({"role": "user", "content": text_of(observation)})
            completion = await client.chat.completions.create(
                model=model.get_inference_name(), messages=trajectory.messages(), logprobs=True, **request
            )
            choice = completion.choices[0]
            messages.append(choice)
            step = await env.astep(choice.message.content or "")
            turns += 1
            trajectory.reward += finite_reward(step.reward)
            observation = step.observation
            if step.terminated or step.truncated:
                break
    finally:
        env.close()
    success = bool(step.info.get("success", step.terminated and step.reward > 0))
    trajectory.metrics.update({"success": success, "turns": turns})
    return trajectory.finish()


class TorchBackend:
    """ART backend that samples and trains a transformers model in this process."""

    def __init__(self, model: Any, tokenizer: Any, *, learning_rate: float = 1e-5, max_length: int = 4096) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = max_length
        _undo_outdated_patch()
        self.engine = LocalEngine(model, tokenizer=tokenizer)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
        self._server = ChatServer(self.engine)
        self._step = 0

    def _model_inference_name(self, model: Any, step: int | None = None) -> str:
        del model, step
        return self._server.model

    async def close(self) -> None:
        await self._server.__aexit__()
        await self.engine.aclose()

    async def register(self, model: Any) -> None:
        """ART calls this for every model; there is nothing to prepare."""

    async def _get_step(self, model: Any) -> int:
        del model
        return self._step

    async def _delete_checkpoint_files(self, model: Any, steps_to_keep: list[int]) -> None:
        """Nothing to delete: this backend writes no checkpoints."""

    async def _prepare_backend_for_training(self, model: Any, config: Any) -> tuple[str, str]:
        del model, config
        if not self._server.url:
            await self._server.__aenter__()
        return self._server.url, "none"

    async def train(
        self, model: Any, trajectory_groups: Iterable[art.TrajectoryGroup], **config: Any
    ) -> art.LocalTrainResult:
        """Update the weights once per sequence with ART's loss; groups with equal rewards are skipped."""
        from art.loss import loss_fn
        from art.preprocessing.pack import packed_tensors_from_tokenized_results
        from art.preprocessing.tokenize import tokenize_trajectory_groups

        del model
        results = list(
            tokenize_trajectory_groups(
                self.tokenizer, list(trajectory_groups), allow_training_without_logprobs=False, scale_rewards=True
            )
        )
        self._step += 1
        if not results:
            return art.LocalTrainResult(step=self._step, metrics={"sequences": 0.0})
        packed = packed_tensors_from_tokenized_results(
            results, self.max_length, pad_token_id=self.tokenizer.pad_token_id, verbosity=0, pack_results=False
        )
        losses = []
        async with self.engine.paused():
            for index in range(len(packed["tokens"])):
                used = int((packed["input_pos"][index] > 0).sum()) + 1  # without the padding
                inputs = {
                    name: value[index : index + 1, :used]
                    for name, value in packed.items()
                    if isinstance(value, torch.Tensor)
                }
                logits = self.model(inputs["tokens"]).logits[:, :-1].float()
                chosen = logits.log_softmax(-1).gather(2, inputs["tokens"][:, 1:, None])[..., 0]
                new_logprobs = torch.nn.functional.pad(chosen, (0, 1))  # ART compares positions shifted by one token
                loss = loss_fn(inputs, new_logprobs, None, None, dict(config))
                loss.policy_loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
                losses.append(float(loss.policy_loss.detach()))
            await self.engine.publish(None, self.engine.version + 1)
        metrics = {"sequences": float(len(losses)), "policy_loss": sum(losses) / len(losses)}
        return art.LocalTrainResult(step=self._step, metrics=metrics)

    def _train_sft(self, *_: Any, **__: Any) -> AsyncIterator[dict[str, float]]:
        raise BadValue(
            "TorchBackend trains by reinforcement learning only; for supervised training, use palestra train --algo sft"
        )


def _undo_outdated_patch() -> None:
    """Restore a function of transformers that ART replaces by one whose arguments are those of older versions."""
    from art.transformers import patches
    from transformers import masking_utils

    original: Any = patches._preprocess_mask_arguments
    replacement: Any = patches._patched_preprocess_mask_arguments
    if [*signature(original).parameters] != [*signature(replacement).parameters]:
        masking_utils._preprocess_mask_arguments = original

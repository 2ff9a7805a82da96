"""Test that TRL's GRPOTrainer trains on episodes of Palestra's environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import palestra
from palestra.core import Env
from palestra.engines.default_model import default_model, save
from palestra.integrations.trl import EnvRollout, env_reward, env_tool, task_dataset
from palestra.types import Step

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return save(*default_model("0.1M", seed=1), folder / "checkpoint")


def trainer_for(checkpoint: Path, folder: Path, rollout: Any, env: str, tasks: int = 4, **options: Any) -> Any:
    from trl import GRPOConfig, GRPOTrainer  # importing it takes seconds, which would slow down every test collection

    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "bf16": False,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "max_completion_length": 256,
        "disable_tqdm": True,
        **options,
    }
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(checkpoint),
        reward_funcs=env_reward,
        train_dataset=task_dataset(env, tasks=tasks),
        rollout_func=rollout,
        args=GRPOConfig(**settings),
    )


class Tokens(Env):
    """Env with three turns that rewards different characters. Every fifth episode fails in its second turn."""

    reward_range = (0.0, 1.0)
    episodes = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.start_episode(seed)
        type(self).episodes += 1
        self.fails = self.episodes % 5 == 0
        self.turn = 0
        return "Write.", {"seed": self.seed}

    def step(self, action: str) -> Step:
        self.turn += 1
        if self.fails and self.turn == 2:
            raise RuntimeError("the environment broke")
        return Step("Again.", min(1.0, len(set(action)) / 16), self.turn == 3, False, {})


def test_several_turns_are_trained_and_failures_are_refilled(checkpoint: Path, tmp_path: Path) -> None:
    palestra.register("test:Tokens-v0", Tokens)
    outputs = []

    class Recorder(EnvRollout):
        def __call__(self, prompts: Any, trainer: Any) -> dict[str, list[Any]]:
            outputs.append((list(prompts), super().__call__(prompts, trainer)))
            return outputs[-1][1]

    try:
        trainer = trainer_for(checkpoint, tmp_path, Recorder(max_tokens=8, rollout={"retries": 0}), "test:Tokens-v0")
        before = {name: value.clone() for name, value in trainer.model.named_parameters()}
        trainer.train()
    finally:
        palestra.unregister("test:Tokens-v0")
    assert len(outputs) == 2
    for prompts, output in outputs:
        assert len(prompts) == len(output["completion_ids"]) == 8
        assert output["env_turns"] == [3] * 8
        assert all(reward is not None for reward in output["env_reward"])
        for ids, mask, logprobs in zip(output["completion_ids"], output["env_mask"], output["logprobs"], strict=True):
            assert len(ids) == len(mask) == len(logprobs)
            starts = [i for i, bit in enumerate(mask) if bit and (i == 0 or not mask[i - 1])]
            assert len(starts) == 3  # three replies, with the environment's tokens masked between them
    assert any(not torch.equal(value, before[name]) for name, value in trainer.model.named_parameters())
    logged = [row["rewards/env_reward/mean"] for row in trainer.state.log_history if "rewards/env_reward/mean" in row]
    assert logged == [pytest.approx(sum(output["env_reward"]) / 8, abs=1e-5) for _, output in outputs]


def test_sampled_log_probabilities_are_those_of_the_model(checkpoint: Path, tmp_path: Path) -> None:
    rollout = EnvRollout(max_tokens=8)
    trainer = trainer_for(checkpoint, tmp_path, rollout, "game:GuessTheNumber-v0-easy")
    output = rollout([row["prompt"] for row in trainer.train_dataset][:2], trainer)
    for index in range(2):
        prompt, completion = output["prompt_ids"][index], output["completion_ids"][index]
        ids = torch.tensor([prompt + completion])
        with torch.no_grad():
            logits = trainer.model(ids).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0]
        mask = torch.tensor(output["env_mask"][index], dtype=torch.bool)
        sampled = torch.tensor(output["logprobs"][index])
        assert torch.allclose(expected[mask], sampled[mask], atol=1e-4)


def test_the_default_template_renders_tool_calls(checkpoint: Path) -> None:
    from trl.chat_template_utils import supports_tool_calling

    assert supports_tool_calling(AutoTokenizer.from_pretrained(checkpoint))


def test_an_environment_is_a_tool() -> None:
    environment = env_tool("game:GuessTheNumber-v0-easy")()
    assert "Guess the Number" in environment.reset(seed=1)
    for number in range(1, 11):
        environment.act(f"\\boxed{{{number}}}")
    assert environment.get_reward() in (0.0, 1.0)
    assert environment.act("\\boxed{1}") == "The episode is over."

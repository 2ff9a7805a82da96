"""Test that TRL's GRPOTrainer improves the rewards of an environment with several turns."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from palestra.engines.default_model import default_model, save
from palestra.integrations.trl import EnvRollout
from tests.frameworks.test_trl import trainer_for

pytestmark = pytest.mark.filterwarnings("ignore")


def test_rewards_rise(tmp_path: Path) -> None:
    rewards: list[list[float]] = []

    class Recorder(EnvRollout):
        def __call__(self, prompts: Any, trainer: Any) -> dict[str, list[Any]]:
            output = super().__call__(prompts, trainer)
            rewards.append(output["env_reward"])
            return output

    checkpoint = save(*default_model("0.1M", seed=1), tmp_path / "model")
    options = {"per_device_train_batch_size": 64, "num_generations": 8, "max_steps": 12, "learning_rate": 3e-3}
    env = "tests.frameworks.letters:Letters"
    trainer_for(checkpoint, tmp_path / "run", Recorder(max_tokens=8), env, tasks=8, **options).train()
    first, last = rewards[0] + rewards[1], rewards[-2] + rewards[-1]
    noise = (statistics.variance(first) / len(first) + statistics.variance(last) / len(last)) ** 0.5
    assert statistics.mean(last) - statistics.mean(first) > 4 * noise, [statistics.mean(row) for row in rewards]

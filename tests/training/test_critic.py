"""Test critics with a separate network: a copy of the model, or LoRA adapters on the policy's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from palestra.training import checkpoint
from palestra.training.step import reinforcement_step
from tests.training.helpers import batch, learner_of

torch.set_num_threads(1)
KINDS = ["model", "lora"]


def critic_of(kind: str, **values: Any) -> Any:
    return learner_of(algorithm="ppo_token", critic=kind, critic_lr=5e-3, value_clip=0.0, **values)


@pytest.mark.parametrize("kind", KINDS)
def test_the_critic_learns_its_own_features_and_leaves_the_policy_unchanged(kind: str) -> None:
    trajectories = batch(4, 8, split_at=2)
    learner = critic_of(kind, lr=0.0)
    policy = learner.policy
    before = [p.clone() for p in policy.model.parameters()]
    body = [p.clone() for p in policy.critic_body.parameters() if p.requires_grad]
    losses = [reinforcement_step(learner, trajectories, 0)["value_loss"] for _ in range(6)]
    assert all(map(torch.equal, before, policy.model.parameters()))
    assert not any(map(torch.equal, body, (p for p in policy.critic_body.parameters() if p.requires_grad)))
    head = learner_of(algorithm="ppo_token", value_clip=0.0, lr=0.0)
    head_losses = [reinforcement_step(head, trajectories, 0)["value_loss"] for _ in range(6)]
    assert losses[0] == pytest.approx(head_losses[0], rel=1e-3), "before the first update, the features are the same"
    assert losses[-1] < 0.95 * head_losses[-1]


def test_a_lora_critic_follows_the_weights_of_the_policy() -> None:
    learner = critic_of("lora", lr=1e-2)
    policy = learner.policy
    reinforcement_step(learner, batch(4), 0)
    current = dict(policy.model.model.named_parameters())
    shared = {name.replace(".base_layer", ""): p for name, p in policy.critic_body.named_parameters()}
    assert all(torch.equal(p, shared[name]) for name, p in current.items())
    trained = [name for name, p in policy.critic_body.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_contains_the_critic(kind: str, tmp_path: Path) -> None:
    trajectories = batch(4)
    learner = critic_of(kind, lr=0.0)
    for _ in range(2):
        reinforcement_step(learner, trajectories, 0)
    checkpoint.save(learner, tmp_path / "step-2", {"step": 2})
    again = critic_of(kind, lr=0.0)
    assert checkpoint.load_state(again, tmp_path / "step-2")["step"] == 2
    rows = [reinforcement_step(each, trajectories, 0) for each in (learner, again)]
    assert rows[0] == rows[1]

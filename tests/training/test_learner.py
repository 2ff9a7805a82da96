"""Test that updates do not depend on splitting, padding, packing or shared prefixes, and that corrections are exact."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.algorithms import Episode, turn_gae
from palestra.rollout.samples import to_batch
from palestra.rollout.types import Trajectory
from palestra.training import token_logprobs
from palestra.training.batch import micro_batches
from palestra.training.learner import Learner
from palestra.training.precompute import final_values, precompute, to_episodes
from palestra.training.rollout_metrics import metrics_by_env
from palestra.training.step import reinforcement_step
from tests.training.helpers import batch, config_of, gradient, learner_of, trajectory

torch.set_num_threads(1)

ALGORITHMS: list[dict[str, Any]] = [
    {"algorithm": "rebn", "gamma": 0.9},
    {"algorithm": "grpo", "aggregate": "sequence", "entropy": 0.01},
    {"algorithm": "rloo", "aggregate": "constant", "kl": 0.1},
    {"algorithm": "reinforce_pp", "kl": 0.1, "kl_in": "reward"},
    {"algorithm": "ppo", "temperature": 0.8},
    {"algorithm": "ppo_token", "gamma": 0.9},
]


def learned(trajectories: list[Trajectory], **values: Any) -> tuple[dict[str, float], torch.Tensor, Learner]:
    learner = learner_of(reference=bool(values.get("kl")), **values)
    metrics = reinforcement_step(learner, trajectories, 0)
    return metrics, gradient(learner), learner


def same(one: tuple[dict[str, float], torch.Tensor, Any], other: tuple[dict[str, float], torch.Tensor, Any]) -> None:
    assert one[0] == pytest.approx(other[0], rel=2e-3, abs=2e-5)
    assert one[1].norm() > 0
    assert (one[1] - other[1]).norm() <= 1e-4 * one[1].norm()


@pytest.mark.slow
@settings(max_examples=4)
@given(seed=st.integers(0, 10_000), options=st.sampled_from(ALGORITHMS), prompt=st.sampled_from([0, 70]))
def test_loss_and_gradient_do_not_depend_on_how_a_batch_is_split(
    seed: int, options: dict[str, Any], prompt: int
) -> None:
    trajectories = batch(seed, prompt=prompt, split_at=2, truncated=bool(seed % 2))
    longest = (
        max(len(row.ids) for row in to_batch(trajectories)) + 8
    )  # includes the prompt that would follow a truncated episode
    plain = learned(trajectories, **options)
    for how in (
        {"token_budget": longest},  # one row at a time: no padding and no shared prefix
        {"token_budget": 2 * longest, "packing": True},
        {"packing": True},
        {"gradient_checkpointing": "on"},
        {"gradient_checkpointing": "on", "packing": True},
    ):
        same(plain, learned(trajectories, **options, **how))


@pytest.mark.parametrize("packing", [False, True])
def test_a_conversation_longer_than_the_token_budget_is_trained_alone(
    packing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    trajectories = batch(3)
    longest = max(len(row.ids) for row in to_batch(trajectories))
    small = {"token_budget": longest - 1, "packing": packing}
    same(learned(trajectories), learned(trajectories, **small))
    assert f"a conversation of {longest} tokens exceeds --token-budget {longest - 1}" in caplog.text
    assert caplog.text.count("exceeds") == 1, "the warning is not repeated"


def test_prefixes_are_shared_and_rows_are_packed() -> None:
    learner = learner_of(packing=True)
    rows = to_batch(batch(1, 8, prompt=70))
    (packed,) = learner.micro_batches(rows)
    assert packed.shared >= 70
    assert len(packed.rows) < len(rows) == len(packed.samples)
    padded = micro_batches(rows, 16384, torch.device("cpu"), share_prefix=True)
    assert padded[0].shared >= 70
    assert micro_batches(rows, 16384, torch.device("cpu"))[0].shared == 0


def test_logits_computed_in_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    trajectories = batch(5)
    plain = learned(trajectories, algorithm="rebn", entropy=0.1)
    monkeypatch.setattr(token_logprobs, "LOGITS_BLOCK", 1)  # one token per block
    same(plain, learned(trajectories, algorithm="rebn", entropy=0.1))


@pytest.mark.parametrize("options", [*ALGORITHMS[:4]], ids=lambda options: options["algorithm"])
def test_the_gradient_equals_finite_differences(options: dict[str, Any]) -> None:
    trajectories = batch(11)
    # The old log-probabilities are close to the current ones, so that no ratio is at a clipping bound.
    metrics, slope, _ = learned(trajectories, **options, lr=0.0, clip_low=1.0, clip_high=1e6)
    direction = slope / slope.norm() + 0.5 * torch.randn(len(slope), generator=torch.Generator().manual_seed(0)) / 400
    found = []
    for sign in (1, -1):
        at = learner_of(reference=bool(options.get("kl")), **options, lr=0.0, clip_low=1.0, clip_high=1e6)
        with torch.no_grad():
            place = 0
            for p in at.policy.parameters():
                p.add_(direction[place : place + p.numel()].view_as(p), alpha=sign * 0.01)
                place += p.numel()
        found.append(reinforcement_step(at, trajectories, 0)["loss"])
    assert (found[0] - found[1]) / 0.02 == pytest.approx(float(slope @ direction), rel=0.03)
    assert metrics["loss"] == pytest.approx(sum(found) / 2, abs=0.05)


@given(seed=st.integers(0, 1000), turn=st.integers(0, 2))
@settings(max_examples=5)
def test_a_reward_affects_only_its_turn_and_earlier_ones(seed: int, turn: int) -> None:
    """Check that turns after the only reward in an episode have no gradient."""
    whole = trajectory(Random(seed), turns=3, rewards=[float(i == turn) for i in range(3)])
    cut = replace(whole, turns=whole.turns[: turn + 1])
    one, other = (learned([t], algorithm="reinforce")[1] * t.sampled_tokens for t in (whole, cut))
    assert (one - other).norm() <= 1e-4 * other.norm()


def test_token_values_and_the_value_after_truncation_come_from_the_critic() -> None:
    for algo in ("ppo", "ppo_token"):
        learner = learner_of(algorithm=algo)
        trajectories = batch(2, 3, truncated=True, split_at=1) + batch(3, 3)
        samples = to_batch(trajectories)
        precompute(learner, samples, corrected=False)
        last_values = final_values(learner, trajectories)
        episodes = to_episodes(trajectories, samples, last_values, learner.policy_gradient.level)
        policy = learner.policy
        assert policy.critic is not None
        for i, t in enumerate(trajectories):
            episode = episodes[i]
            calls = [call for turn in t.turns for call in turn.action.calls]
            with torch.no_grad():
                token_values = [
                    _value(policy, call.prompt_ids + call.ids[:k]) for call in calls for k in range(len(call.ids))
                ]
                starts = [_value(policy, turn.action.calls[0].prompt_ids) for turn in t.turns]
                after = _value(policy, list(t.final_prompt)) if t.final_prompt else 0.0
            assert (episode.token_values if algo == "ppo_token" else episode.values) == pytest.approx(
                token_values if algo == "ppo_token" else starts, abs=1e-4
            )
            assert episode.last_value == pytest.approx(after, abs=1e-4)
            assert episode.truncated is (i < 3)
        if algo == "ppo":
            advantages = learner.policy_gradient.advantages(episodes)
            cut = episodes[0]
            assert cut.values is not None
            want = turn_gae(cut.rewards, cut.values, gamma=1.0, lam=0.95, last_value=cut.last_value)
            assert advantages.returns is not None
            assert advantages.returns[0] == pytest.approx([a + v for a, v in zip(want, cut.values, strict=True)])


def _value(policy: Any, ids: list[int]) -> float:
    hidden = policy.model.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
    return float(policy.critic(hidden))


def test_the_critic_fits_its_targets() -> None:
    for algo in ("ppo", "ppo_token"):
        learner = learner_of(algorithm=algo, value_lr=1e-2, lr=0.0, value_clip=0.0, gamma=0.9)
        trajectories = batch(4, 8)
        losses = [reinforcement_step(learner, trajectories, 0)["value_loss"] for _ in range(10)]
        assert losses[-1] < 0.5 * losses[0]


def test_the_only_remaining_member_of_a_group_has_no_advantage() -> None:
    for algo in ("grpo", "rloo"):
        learner = learner_of(algorithm=algo)
        rng = Random(1)
        pair = [trajectory(rng, group=0), trajectory(rng, group=0)]
        alone = trajectory(rng, group=1)
        metrics = reinforcement_step(learner, [*pair, alone], 0)
        assert metrics["singleton"] == 0.5
        assert metrics["signal"]
        assert reinforcement_step(learner, [alone], 0)["signal"] == 0.0


def test_environments_are_normalized_separately() -> None:
    rng = Random(2)
    small = [trajectory(rng, turns=1, rewards=[r], env_id="game:small", group=i) for i, r in enumerate((0.0, 1.0))]
    large = [trajectory(rng, turns=1, rewards=[r], env_id="game:large", group=i) for i, r in enumerate((0.0, 100.0))]
    for algo in ("rebn", "reinforce_pp", "ppo", "ppo_token"):
        assert config_of(algorithm=algo).algorithm.config.normalize_per_env is True
        assert config_of(algorithm=algo, normalize_per_env=False).algorithm.config.normalize_per_env is False
    episodes = [Episode.from_trajectory(t) for t in small + large]
    apart = learner_of().policy_gradient.advantages(episodes).advantages
    assert apart[1] == pytest.approx(apart[3])
    together = learner_of(normalize_per_env=False).policy_gradient.advantages(episodes).advantages
    assert together[1][0] < 0 < together[3][0]


def test_metrics_per_environment() -> None:
    rng = Random(3)
    one = replace(trajectory(rng, turns=2, rewards=[0.0, 1.0], env_id="game:A"), success=True)
    two = trajectory(rng, turns=4, rewards=[0.0] * 4, env_id="game:A")
    three = trajectory(rng, turns=1, rewards=[0.5], env_id="game:B")
    assert metrics_by_env([one, two, three]) == {
        "episodes/game:A": 2.0,
        "success/game:A": 0.5,
        "return/game:A": 0.5,
        "turns_per_episode/game:A": 3.0,
        "episodes/game:B": 1.0,
        "success/game:B": 0.0,
        "return/game:B": 0.5,
        "turns_per_episode/game:B": 1.0,
    }


def test_sampling_weights_change_only_when_published() -> None:
    """Check that the learner can update its weights while the engine samples from a separate copy."""
    learner = learner_of(lr=1e-2)
    learner.policy.separate_sampler()
    sampler = learner.policy.sampler
    assert sampler is not learner.policy.model
    before = {name: p.clone() for name, p in sampler.named_parameters()}
    reinforcement_step(learner, batch(1), 0)
    assert all(torch.equal(p, before[name]) for name, p in sampler.named_parameters())
    learner.policy.update_sampler()
    now = dict(learner.policy.model.named_parameters())
    assert all(torch.equal(p, now[name]) for name, p in sampler.named_parameters())
    assert not all(torch.equal(p, before[name]) for name, p in sampler.named_parameters())

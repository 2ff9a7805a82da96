"""Laws of an update: how samples are cut, padded, packed or shared is nobody's business but the memory's."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.algorithms import turn_gae
from palestra.errors import BadValue
from palestra.rollout.types import Trajectory
from palestra.training import policy as model_module
from palestra.training.batch import micro_batches, rows_of
from palestra.training.by_env import by_env
from palestra.training.learner import Learner, algorithm_of
from tests.training.made import batch, config_of, gradient, learner_of, trajectory

torch.set_num_threads(1)

ALGORITHMS: list[dict[str, Any]] = [
    {"algo": "rebn", "gamma": 0.9},
    {"algo": "grpo", "aggregate": "sequence", "entropy": 0.01},
    {"algo": "rloo", "aggregate": "constant", "kl": 0.1},
    {"algo": "reinforce_pp", "kl": 0.1, "kl_in": "reward"},
    {"algo": "ppo", "temperature": 0.8},
    {"algo": "ppo_token", "gamma": 0.9},
]


def learned(trajectories: list[Trajectory], **values: Any) -> tuple[dict[str, float], torch.Tensor, Learner]:
    learner = learner_of(reference=bool(values.get("kl")), **values)
    metrics = learner.learn(trajectories, 0)
    return metrics, gradient(learner), learner


def same(one: tuple[dict[str, float], torch.Tensor, Any], other: tuple[dict[str, float], torch.Tensor, Any]) -> None:
    assert one[0] == pytest.approx(other[0], rel=2e-3, abs=2e-5)
    assert one[1].norm() > 0
    assert (one[1] - other[1]).norm() <= 1e-4 * one[1].norm()


@pytest.mark.slow
@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), options=st.sampled_from(ALGORITHMS), prompt=st.sampled_from([0, 70]))
def test_no_way_of_cutting_a_batch_changes_loss_or_gradient(seed: int, options: dict[str, Any], prompt: int) -> None:
    trajectories = batch(seed, prompt=prompt, split_at=2, truncated=bool(seed % 2))
    longest = max(len(row.ids) for row in rows_of(trajectories)) + 8  # and what would have been read after a cut
    plain = learned(trajectories, **options)
    for how in (
        {"token_budget": longest},  # one row at a time, so nothing is padded or shared
        {"token_budget": 2 * longest, "packing": True},
        {"packing": True},
        {"gradient_checkpointing": "on"},
        {"gradient_checkpointing": "on", "packing": True},
    ):
        same(plain, learned(trajectories, **options, **how))


def test_sharing_and_packing_really_happen() -> None:
    learner = learner_of(packing=True)
    rows = rows_of(batch(1, 8, prompt=70))
    (packed,) = learner.micros(rows)
    assert packed.shared >= 70
    assert len(packed.lines) < len(rows) == len(packed.rows)
    padded = micro_batches(rows, 16384, torch.device("cpu"), share=True)
    assert padded[0].shared >= 70
    assert micro_batches(rows, 16384, torch.device("cpu"))[0].shared == 0


def test_logits_in_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    trajectories = batch(5)
    plain = learned(trajectories, algo="rebn", entropy=0.1)
    monkeypatch.setattr(model_module, "CHUNK", 1)  # a token a block
    same(plain, learned(trajectories, algo="rebn", entropy=0.1))


@pytest.mark.parametrize("options", [*ALGORITHMS[:4]], ids=lambda options: options["algo"])
def test_the_gradient_is_that_of_finite_differences(options: dict[str, Any]) -> None:
    trajectories = batch(11)
    # Old log-probabilities near the model's own, so that no ratio sits on a clip's corner.
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
        found.append(at.learn(trajectories, 0)["loss"])
    assert (found[0] - found[1]) / 0.02 == pytest.approx(float(slope @ direction), rel=0.03)
    assert metrics["loss"] == pytest.approx(sum(found) / 2, abs=0.05)


@given(seed=st.integers(0, 1000), turn=st.integers(0, 2))
@settings(max_examples=5)
def test_a_reward_reaches_its_own_turn_and_earlier_ones_only(seed: int, turn: int) -> None:
    """With a reward at one turn alone, what comes after might as well not have been said."""
    whole = trajectory(Random(seed), turns=3, rewards=[float(i == turn) for i in range(3)])
    cut = replace(whole, turns=whole.turns[: turn + 1])
    one, other = (learned([t], algo="reinforce")[1] * t.sampled_tokens for t in (whole, cut))
    assert (one - other).norm() <= 1e-4 * other.norm()


def test_token_values_and_the_value_after_a_cut_are_the_critics() -> None:
    for algo in ("ppo", "ppo_token"):
        learner = learner_of(algo=algo)
        trajectories = batch(2, 3, truncated=True, split_at=1) + batch(3, 3)
        rows = rows_of(trajectories)
        with torch.no_grad():
            before = learner._before(rows, trajectories, anchor=False)
        policy = learner.policy
        assert policy.critic is not None
        for i, t in enumerate(trajectories):
            episode = before.episode(i, t)
            calls = [call for turn in t.turns for call in turn.action.calls]
            with torch.no_grad():
                said = [_value(policy, call.prompt_ids + call.ids[:k]) for call in calls for k in range(len(call.ids))]
                starts = [_value(policy, turn.action.calls[0].prompt_ids) for turn in t.turns]
                after = _value(policy, list(t.final_prompt)) if t.final_prompt else 0.0
            assert (episode.token_values if algo == "ppo_token" else episode.values) == pytest.approx(
                said if algo == "ppo_token" else starts, abs=1e-4
            )
            assert episode.last_value == pytest.approx(after, abs=1e-4)
            assert episode.truncated is (i < 3)
        if algo == "ppo":
            episodes = [before.episode(i, t) for i, t in enumerate(trajectories)]
            credit = learner.algorithm.credit(episodes)
            cut = episodes[0]
            assert cut.values is not None
            want = turn_gae(cut.rewards, cut.values, gamma=1.0, lam=0.95, last_value=cut.last_value)
            assert credit.returns is not None
            assert credit.returns[0] == pytest.approx([a + v for a, v in zip(want, cut.values, strict=True)])


def _value(policy: Any, ids: list[int]) -> float:
    hidden = policy.model.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
    return float(policy.critic(hidden))


def test_the_critic_learns_what_it_is_asked() -> None:
    for algo in ("ppo", "ppo_token"):
        learner = learner_of(algo=algo, value_lr=1e-2, lr=0.0, value_clip=0.0, gamma=0.9)
        trajectories = batch(4, 8)
        losses = [learner.learn(trajectories, 0)["value_loss"] for _ in range(30)]
        assert losses[-1] < 0.5 * losses[0]


def test_one_of_a_group_that_is_left_alone_teaches_nothing() -> None:
    for algo in ("grpo", "rloo"):
        learner = learner_of(algo=algo)
        rng = Random(1)
        pair = [trajectory(rng, group=0), trajectory(rng, group=0)]
        alone = trajectory(rng, group=1)
        metrics = learner.learn([*pair, alone], 0)
        assert metrics["credit_lone"] == 0.5
        assert metrics["signal"]
        assert learner.learn([alone], 0)["signal"] == 0.0


def test_stale_samples_are_corrected_as_the_formula_says() -> None:
    trajectories = batch(7, version=3)
    fresh = learner_of(algo="rebn").learn(trajectories, 0, version=3)
    assert (fresh["stale_mean"], fresh["stale_max"]) == (0.0, 0)
    assert "importance_mean" not in fresh

    learner = learner_of(algo="rebn", lr=0.0, stale_cap=1.1)
    metrics = learner.learn(trajectories, 0, version=5)
    assert (metrics["stale_mean"], metrics["stale_max"]) == (2.0, 2)
    # By hand: the weights did not move, so p is the anchor and the ratio is 1.
    (micro,) = learner.micros(rows_of(trajectories))
    with torch.no_grad():
        now = learner.policy.score(micro).logprobs
    weight = (now - micro.old_logprobs).exp()[micro.mask]
    assert metrics["importance_mean"] == pytest.approx(float(weight.mean()), rel=1e-4)
    assert metrics["importance_max"] == pytest.approx(float(weight.max()), rel=1e-4)
    assert metrics["capped_fraction"] == pytest.approx(float((weight > 1.1).float().mean()), rel=1e-4)
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    credit = algorithm_of(learner.config).credit(
        [learner._before([], [], anchor=False).episode(i, t) for i, t in enumerate(trajectories)]
    )
    advantages = micro.from_turns(credit.advantages)[micro.mask]
    assert metrics["policy_loss"] == pytest.approx(float(-(weight.clamp(max=1.1) * advantages).mean()), rel=1e-3)

    masked = learner_of(algo="rebn", lr=0.0, stale_cap=0.0, stale_keep_low=0.8, stale_keep_high=1.25)
    metrics = masked.learn(trajectories, 0, version=4)
    kept = (weight >= 0.8) & (weight <= 1.25)
    assert 0 < kept.float().mean() < 1
    assert metrics["dropped_fraction"] == pytest.approx(float((~kept).float().mean()), rel=1e-4)
    assert metrics["policy_loss"] == pytest.approx(float(-(weight * kept * advantages).mean()), rel=1e-3)

    with pytest.raises(BadValue, match="temperature 1"):
        learner_of(algo="rebn", temperature=0.7).learn(trajectories, 0, version=4)


def test_one_environment_does_not_drown_the_other() -> None:
    rng = Random(2)
    small = [trajectory(rng, turns=1, rewards=[r], env_id="game:small", group=i) for i, r in enumerate((0.0, 1.0))]
    large = [trajectory(rng, turns=1, rewards=[r], env_id="game:large", group=i) for i, r in enumerate((0.0, 100.0))]
    for algo in ("rebn", "reinforce_pp", "ppo", "ppo_token"):
        assert algorithm_of(config_of(algo=algo)).per_env is True  # type: ignore[attr-defined]
        assert algorithm_of(config_of(algo=algo, normalise_per_env=False)).per_env is False  # type: ignore[attr-defined]
    episodes = [learner_of()._before([], [], anchor=False).episode(i, t) for i, t in enumerate(small + large)]
    apart = algorithm_of(config_of()).credit(episodes).advantages
    assert apart[1] == pytest.approx(apart[3])
    together = algorithm_of(config_of(normalise_per_env=False)).credit(episodes).advantages
    assert together[1][0] < 0 < together[3][0]


def test_figures_of_each_environment() -> None:
    rng = Random(3)
    one = replace(trajectory(rng, turns=2, rewards=[0.0, 1.0], env_id="game:A"), success=True)
    two = trajectory(rng, turns=4, rewards=[0.0] * 4, env_id="game:A")
    three = trajectory(rng, turns=1, rewards=[0.5], env_id="game:B")
    assert by_env([one, two, three]) == {
        "episodes/game:A": 2.0,
        "success/game:A": 0.5,
        "return/game:A": 0.5,
        "turns_per_episode/game:A": 3.0,
        "episodes/game:B": 1.0,
        "success/game:B": 0.0,
        "return/game:B": 0.5,
        "turns_per_episode/game:B": 1.0,
    }


def moved(learner: Learner, trajectories: list[Trajectory]) -> float:
    """KL from the model as learners of these tests begin to the one of now, over the sampled tokens."""
    (micro,) = learner.micros(rows_of(trajectories))
    with torch.no_grad():
        now = learner.policy.score(micro).logprobs[micro.mask]
        then = learner_of(temperature=0.8).policy.score(micro).logprobs[micro.mask]
    ratio = now - then
    return float((ratio.exp() - 1 - ratio).mean())


def test_an_update_that_goes_too_far_is_made_smaller() -> None:
    trajectories = batch(5, 8)
    far = {"lr": 2e-3, "temperature": 0.8}  # other than 1: then the policy itself says what it thought before
    metrics, _, free = learned(trajectories, **far)
    assert "held_back" not in metrics
    limit = moved(free, trajectories) / 4
    metrics, _, held = learned(trajectories, kl_back=limit, **far)
    assert metrics["held_back"] == 1
    assert 0 < moved(held, trajectories) <= limit
    metrics, _, stuck = learned(trajectories, kl_back=1e-30, **far)
    assert metrics["held_back"] == 1
    begin = learner_of(temperature=0.8).policy.model
    assert all(torch.equal(p, q) for p, q in zip(stuck.policy.model.parameters(), begin.parameters(), strict=True))
    metrics, _, near = learned(trajectories, kl_back=limit, lr=1e-6, temperature=0.8)
    assert "held_back" not in metrics
    assert moved(near, trajectories) > 0


def test_what_is_sampled_from_changes_only_when_published() -> None:
    """With a copy for sampling the learner may write while the engine reads."""
    learner = learner_of(lr=1e-2)
    learner.policy.split()
    twin = learner.policy.sampler
    assert twin is not learner.policy.model
    before = {name: p.clone() for name, p in twin.named_parameters()}
    learner.publishes = False
    learner.learn(batch(1), 0)
    assert all(torch.equal(p, before[name]) for name, p in twin.named_parameters())
    learner.policy.publish()
    now = dict(learner.policy.model.named_parameters())
    assert all(torch.equal(p, now[name]) for name, p in twin.named_parameters())
    assert not all(torch.equal(p, before[name]) for name, p in twin.named_parameters())

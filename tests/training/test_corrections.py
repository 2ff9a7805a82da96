"""Test the corrections in a training step: importance weights, excluded tokens and episodes, and denominators."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest
import torch

from palestra.algorithms import Episode
from palestra.rollout.samples import to_batch
from palestra.rollout.types import Trajectory
from palestra.training.learner import Learner
from palestra.training.step import reinforcement_step
from tests.training.helpers import batch, gradient, learner_of, trajectory

torch.set_num_threads(1)


def logprobs(learner: Learner, trajectories: list[Trajectory]) -> list[list[float]]:
    """Return the log-probs of each trajectory's sampled tokens, computed call by call without batching."""
    rows = []
    for t in trajectories:
        row: list[float] = []
        for call in [call for turn in t.turns for call in turn.action.calls]:
            ids = torch.tensor([call.prompt_ids + call.ids])
            with torch.no_grad():
                scores = (learner.policy.model(input_ids=ids).logits[0] / learner.policy.temperature).log_softmax(-1)
            start = len(call.prompt_ids)
            row += [float(scores[start + i - 1, token]) for i, token in enumerate(call.ids)]
        rows.append(row)
    return rows


def on_policy(t: Trajectory, row: list[float]) -> Trajectory:
    """Return the trajectory with these log-probs for its sampled tokens."""
    left = iter(row)
    turns = []
    for turn in t.turns:
        calls = tuple(replace(call, logprobs=[next(left) for _ in call.ids]) for call in turn.action.calls)
        turns.append(replace(turn, action=replace(turn.action, calls=calls)))
    return replace(t, turns=tuple(turns))


def expected(
    learner: Learner, trajectories: list[Trajectory], cap: float, mask: tuple[float, float]
) -> dict[str, float]:
    """Compute the policy loss with token-level importance weights in plain loops; the current ratio is 1."""
    ratios = []
    for t, row in zip(trajectories, logprobs(learner, trajectories), strict=True):
        old = [p for turn in t.turns for call in turn.action.calls for p in call.logprobs]
        ratios.append([float(torch.tensor(new - before).exp()) for new, before in zip(row, old, strict=True)])
    weights = [min(float(torch.tensor(row).prod()), cap) for row in ratios]
    episodes = [Episode.from_trajectory(t, weight=w) for t, w in zip(trajectories, weights, strict=True)]
    rows = learner.policy_gradient.advantages(episodes).advantages
    total, count, clipped = 0.0, 0, 0
    for t, row, advantages in zip(trajectories, ratios, rows, strict=True):
        tokens = [i for i, turn in enumerate(t.turns) for call in turn.action.calls for _ in call.ids]
        for ratio, turn in zip(row, tokens, strict=True):
            clipped += ratio > cap
            if mask[0] <= ratio <= mask[1]:
                total -= min(ratio, cap) * advantages[turn]
                count += 1
    everything = sum(map(len, ratios))
    return {
        "policy_loss": total / count,
        "is_weight_mean": sum(map(sum, ratios)) / everything,
        "is_weight_max": max(map(max, ratios)),
        "is_clipped_fraction": clipped / everything,
        "is_masked_fraction": 1 - count / everything,
    }


@pytest.mark.parametrize("options", [{"version": 5}, {"version": 3, "is_correction": "always"}], ids=["stale", "sync"])
def test_importance_weights_equal_the_formula(options: dict[str, Any]) -> None:
    trajectories = batch(7, version=3, split_at=2)
    version = options.pop("version")
    cases: list[tuple[dict[str, Any], float, tuple[float, float]]] = [
        ({"is_clip": 1.1}, 1.1, (0.0, inf)),
        ({"is_clip": 1.1, "temperature": 0.7}, 1.1, (0.0, inf)),
        ({"is_clip": 0.0, "is_mask_low": 0.5, "is_mask_high": 1.5}, inf, (0.5, 1.5)),
    ]
    for settings, cap, mask in cases:
        learner = learner_of(algorithm="rebn", lr=0.0, **settings, **options)
        wanted = expected(learner, trajectories, cap, mask)
        metrics = reinforcement_step(learner, trajectories, 0, version=version)
        for name in wanted:
            if name in metrics or name == "policy_loss":
                assert metrics[name] == pytest.approx(wanted[name], rel=1e-3, abs=1e-5), name
        assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
        assert (0 < metrics.get("is_masked_fraction", 0) < 1) == (mask[1] < inf)


def test_fresh_samples_are_not_corrected_by_default() -> None:
    learner = learner_of(algorithm="rebn")
    trajectories = batch(7, version=3)
    exact = [on_policy(t, row) for t, row in zip(trajectories, logprobs(learner, trajectories), strict=True)]
    metrics = reinforcement_step(learner, exact, 0, version=3)
    assert metrics["engine_kl"] == pytest.approx(0.0, abs=1e-6)
    assert (metrics["staleness_mean"], metrics["staleness_max"]) == (0.0, 0)
    assert "is_weight_mean" not in metrics


def test_a_mask_that_rejects_everything_makes_no_update() -> None:
    learner = learner_of(algorithm="rebn", is_correction="always", is_mask_low=1e6, is_mask_high=1e7)
    before = [p.clone() for p in learner.policy.parameters()]
    assert reinforcement_step(learner, batch(7), 0)["updates"] == 0
    assert all(map(torch.equal, before, learner.policy.parameters()))


def split(t: Trajectory) -> Trajectory:
    """Return the same episode with prompts that do not extend each other, as if the template rewrote old messages."""
    turns = []
    for i, turn in enumerate(t.turns):
        calls = tuple(replace(call, prompt_ids=[7 + i, *call.prompt_ids]) for call in turn.action.calls)
        turns.append(replace(turn, action=replace(turn.action, calls=calls)))
    return replace(t, turns=tuple(turns))


@pytest.mark.parametrize("aggregate", ["sequence", "constant"])
def test_the_loss_of_an_episode_does_not_depend_on_its_number_of_samples(aggregate: str) -> None:
    """Check that an episode counts once in the denominators, even if the chat template splits every turn."""
    rng = Random(3)
    whole = [trajectory(rng, turns=4, rewards=[0.0, 0.0, 0.0, r], group=0) for r in (1.0, 0.0)]
    parts = [split(t) for t in whole]
    assert len(to_batch(whole)) == 2
    assert len(to_batch(parts)) == 8
    settings: dict[str, Any] = {
        "algorithm": "grpo",
        "aggregate": aggregate,
        "lr": 0.0,
        "constant_length": 50,
        "temperature": 0.9,
    }
    for trajectories in (whole, parts):  # at temperature 0.9, old log-probs are recomputed, so every ratio is 1
        learner = learner_of(**settings)
        rows = learner.policy_gradient.advantages([Episode.from_trajectory(t) for t in trajectories]).advantages
        wanted = 0.0
        for t, row in zip(trajectories, rows, strict=True):
            sums = [a * sum(len(c.ids) for c in turn.action.calls) for a, turn in zip(row, t.turns, strict=True)]
            wanted -= sum(sums) / (t.sampled_tokens if aggregate == "sequence" else 50) / 2
        metrics = reinforcement_step(learner, trajectories, 0)
        assert metrics["policy_loss"] == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def test_the_constant_length_is_the_maximum_number_of_tokens_per_episode() -> None:
    assert learner_of(algorithm="dr_grpo", constant_length=7).constant_length == 7
    assert learner_of(algorithm="dr_grpo", horizon="2,5@3", max_tokens=8).constant_length == 40
    learner = learner_of(algorithm="dr_grpo")
    assert learner.constant_length == learner.policy.model.config.max_position_embeddings


def test_groups_without_variance_leave_the_loss_and_its_denominators() -> None:
    rng = Random(5)
    varied = [trajectory(rng, turns=2, rewards=[0.0, r], group=0) for r in (0.0, 1.0)]
    flat = [trajectory(rng, turns=3, rewards=[0.0, 0.0, 1.0], group=1) for _ in range(2)]
    alone, together = (learner_of(algorithm="grpo", entropy=0.1, lr=0.0) for _ in range(2))
    one = reinforcement_step(alone, varied, 0)
    both = reinforcement_step(together, [*flat, *varied], 0)
    assert both["zero_variance"] == 0.5
    assert both["loss"] == pytest.approx(one["loss"], rel=1e-5)
    assert torch.allclose(gradient(together), gradient(alone), atol=1e-6)
    kept = learner_of(algorithm="grpo", entropy=0.1, lr=0.0, zero_variance="keep")
    assert reinforcement_step(kept, [*flat, *varied], 0)["loss"] != pytest.approx(one["loss"], rel=1e-3)


def test_the_entropy_bonus_ends_at_its_target() -> None:
    trajectories = batch(7)
    entropy = -sum(p for row in to_batch(trajectories) for p in row.logprobs) / sum(
        r.sampled for r in to_batch(trajectories)
    )
    full = learner_of(algorithm="rebn", entropy=0.1, lr=0.0)
    off, half = (
        learner_of(algorithm="rebn", entropy=0.1, entropy_target=target, lr=0.0) for target in (entropy, 2 * entropy)
    )
    losses = [reinforcement_step(learner, trajectories, 0) for learner in (full, half, off)]
    bonuses = [(row["policy_loss"] - row["loss"]) / row["entropy"] for row in losses]
    assert bonuses == pytest.approx([0.1, 0.05, 0.0], abs=1e-6)


@pytest.mark.parametrize("over", ["turn", "sample"])
def test_gspo_ratios_cover_turns_or_samples(over: str) -> None:
    trajectories = batch(9, split_at=2)
    learner = learner_of(algorithm="gspo", ratio_over=over, lr=0.0)
    now = logprobs(learner, trajectories)
    ratios = []
    for t, row in zip(trajectories, now, strict=True):
        numbers = iter(row)
        sequences: dict[int, list[float]] = {}
        for i, turn in enumerate(t.turns):
            key = i if over == "turn" else i >= 2  # a new sample starts at turn 2
            sequences.setdefault(key, []).extend(next(numbers) - p for c in turn.action.calls for p in c.logprobs)
        ratios += [(len(s), float(torch.tensor(s).mean().exp())) for s in sequences.values()]
    metrics = reinforcement_step(learner, trajectories, 0)
    assert metrics["ratio_max"] == pytest.approx(max(r for _, r in ratios), rel=1e-3)
    assert metrics["ratio_min"] == pytest.approx(min(r for _, r in ratios), rel=1e-3)
    assert metrics["ratio_mean"] == pytest.approx(sum(n * r for n, r in ratios) / sum(n for n, _ in ratios), rel=1e-3)

"""Compare importance weights, weighted baselines and V-trace targets with their definitions, on ragged batches."""

from __future__ import annotations

from math import exp, inf, prod, sqrt
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.algorithms import (
    GRPO,
    PPO,
    RLOO,
    Episode,
    ImportanceOptions,
    ReBN,
    TokenPPO,
    importance_weights,
    make_algorithm,
)
from palestra.algorithms.importance import Level, turn_ratios
from palestra.algorithms.losses import Denominators, LossInputs, policy_loss
from palestra.algorithms.normalize import mean_and_std
from palestra.errors import BadValue
from tests.algorithms.batches import close, episodes, units

LEVELS: list[Level] = ["token", "turn", "sequence", "geometric"]


def bandit_gradient(cap: float, reward: tuple[float, float], *, baseline: bool) -> float:
    """Return the policy gradient for the first logit, with samples from mu = (.9, .1) and the policy pi = (.5, .5).

    The batch contains ten samples in exactly the proportions of mu.
    """
    arms = [0] * 9 + [1]
    mu, pi = (0.9, 0.1), (0.5, 0.5)
    log_ratios = [[torch.tensor(pi[arm] / mu[arm]).log().item()] for arm in arms]
    found = [importance_weights(row, [0], ImportanceOptions(clip=cap)) for row in log_ratios]
    batch = [Episode(rewards=[reward[arm]], weight=own.episode) for arm, own in zip(arms, found, strict=True)]
    rows = make_algorithm("reinforce", baseline=baseline).advantages(batch).advantages  # type: ignore[attr-defined]
    logits = torch.zeros(2, requires_grad=True)
    now = logits.log_softmax(0)[torch.tensor(arms)][:, None]
    inputs = LossInputs(
        logprobs=now,
        old_logprobs=torch.tensor([[mu[arm]] for arm in arms]).log(),
        proximal_logprobs=now.detach(),
        weights=torch.tensor([own.weights for own in found]),
        advantages=torch.tensor(rows),
        mask=torch.ones(10, 1),
    )
    (gradient,) = torch.autograd.grad(-policy_loss(inputs, Denominators.of(inputs.mask)).loss, logits)
    return float(gradient[0])


@pytest.mark.parametrize(("cap", "bias"), [(1.0, 0.20), (2.0, 0.15), (5.0, 0.0)])
def test_the_default_cap_is_unbiased_in_a_stale_bandit(cap: float, bias: float) -> None:
    """Check that a constant reward has no gradient; a low cap favors the arm that the stale policy prefers."""
    assert bandit_gradient(cap, (1.0, 1.0), baseline=False) == pytest.approx(bias, abs=1e-6)
    default = make_algorithm("rebn").config.importance
    assert bandit_gradient(default.clip, (1.0, 1.0), baseline=False) == pytest.approx(0.0, abs=1e-6)


def test_the_baseline_of_a_stale_bandit_is_the_value_of_the_current_policy() -> None:
    """Check that the baseline is E_pi[R] = 0.5 and leaves the gradient at its exact value, pi_0 pi_1 (R_0 - R_1)."""
    assert bandit_gradient(5.0, (1.0, 0.0), baseline=True) == pytest.approx(0.25, abs=1e-6)
    weights = [0.5 / 0.9] * 9 + [5.0]
    assert mean_and_std([1.0] * 9 + [0.0], weights)[0] == pytest.approx(0.5)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), level=st.sampled_from(LEVELS), mask_level=st.sampled_from(LEVELS))
def test_weights_and_masks_equal_their_definition(seed: int, level: Level, mask_level: Level) -> None:
    rng = Random(seed)
    turns = [turn for turn in range(rng.randint(1, 4)) for _ in range(rng.randint(1, 4))]
    log_ratios = [rng.gauss(0, 0.5) for _ in turns]
    ratios = [exp(x) for x in log_ratios]
    cap, low, high = rng.choice([0.0, 1.2, 2.0]), 0.7, 1.5

    def at(i: int, level: Level) -> float:
        own = [r for r, turn in zip(ratios, turns, strict=True) if turn == turns[i]]
        whole = prod(ratios)
        return {"token": ratios[i], "turn": prod(own), "sequence": whole, "geometric": whole ** (1 / len(turns))}[level]

    options = ImportanceOptions(clip=cap, level=level, mask=(low, high), mask_level=mask_level)
    found = importance_weights(log_ratios, turns, options)
    assert found.weights == pytest.approx([min(at(i, level), cap or inf) for i in range(len(turns))])
    assert found.keep == [low <= at(i, mask_level) <= high for i in range(len(turns))]
    assert found.episode == pytest.approx(min(prod(ratios), cap or inf))
    wanted = [prod(r for r, own in zip(ratios, turns, strict=True) if own == t) for t in range(turns[-1] + 1)]
    assert turn_ratios(log_ratios, turns, cap) == pytest.approx([min(x, cap or inf) for x in wanted])


def weighted(numbers: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the weighted mean and standard deviation of pairs (weight, number)."""
    total = sum(w for w, _ in numbers)
    mean = sum(w * x for w, x in numbers) / total
    freedom = total - sum(w * w for w, _ in numbers) / total
    return mean, sqrt(sum(w * (x - mean) ** 2 for w, x in numbers) / freedom) if freedom > 1e-9 else 0.0


@settings(max_examples=12)
@given(batch=episodes(groups=True, weighted=True), gamma=units)
def test_baselines_use_the_weights_of_stale_episodes(batch: list[Episode], gamma: float) -> None:
    totals = [sum(gamma**k * r for k, r in enumerate(e.rewards)) for e in batch]
    grpo, rloo = [], []
    for i, episode in enumerate(batch):
        group = [(e.weight, total) for e, total in zip(batch, totals, strict=True) if e.task == episode.task]
        others = [(e.weight, totals[j]) for j, e in enumerate(batch) if e.task == episode.task and j != i]
        mean, deviation = weighted(group)
        if 0 < deviation < 1e-5:
            return  # near the threshold below which a deviation counts as rounding
        flat = deviation < 1e-8
        grpo.append([0.0 if flat else (totals[i] - mean) / deviation] * len(episode.rewards))
        rloo.append([0.0 if flat else totals[i] - weighted(others)[0]] * len(episode.rewards))
    assert close(GRPO(gamma=gamma).advantages(batch).advantages, grpo, 1e-6)
    assert close(RLOO(gamma=gamma).advantages(batch).advantages, rloo, 1e-6)


def test_rebn_weights_every_turn_of_a_stale_episode() -> None:
    batch = [Episode(rewards=[0.0, 1.0], weight=2.0), Episode(rewards=[3.0], weight=0.5)]
    mean, deviation = weighted([(2.0, 1.0), (2.0, 1.0), (0.5, 3.0)])
    wanted = [[(1 - mean) / deviation] * 2, [(3 - mean) / deviation]]
    assert close(ReBN().advantages(batch).advantages, wanted)


@settings(max_examples=12)
@given(batch=episodes(weighted=True), gamma=units, lam=units)
def test_critic_targets_of_stale_episodes_are_v_trace(batch: list[Episode], gamma: float, lam: float) -> None:
    """Compare with v_t = V_t + sum_k (prod_{t<=i<k} g_i l_i c_i) w_k d_k, A_t = d_t + g_t l_t (v_{t+1} - V_{t+1})."""
    for kind in (PPO, TokenPPO):
        result = kind(gamma=gamma, lam=lam, whiten=False).advantages(batch)
        assert result.returns is not None
        for episode, advantages, targets in zip(batch, result.advantages, result.returns, strict=True):
            tokens = kind is TokenPPO
            turns = list((episode.token_turns if tokens else range(len(episode.rewards))) or ())
            values: Any = episode.token_values if tokens else episode.values
            weights: Any = episode.token_ratios if tokens else episode.ratios
            n = len(turns)
            ends = [i == n - 1 or turns[i + 1] != turns[i] for i in range(n)]
            rewards = [episode.rewards[turn] if end else 0.0 for turn, end in zip(turns, ends, strict=True)]
            after = [*values, episode.last_value if episode.truncated else 0.0]
            g = [gamma if end else 1.0 for end in ends]
            steps = [gamma * lam if end else 1.0 for end in ends]
            d = [rewards[i] + g[i] * after[i + 1] - values[i] for i in range(n)]
            gaps = [
                sum(prod(steps[i] * min(1.0, weights[i]) for i in range(t, k)) * weights[k] * d[k] for k in range(t, n))
                for t in range(n + 1)
            ]
            assert close([targets], [[values[t] + gaps[t] for t in range(n)]], 1e-7)
            assert close([advantages], [[d[t] + steps[t] * gaps[t + 1] for t in range(n)]], 1e-7)


def test_invalid_options_are_rejected() -> None:
    for options, message in (({"clip": -1.0}, "clip"), ({"mask": (2.0, 1.0)}, "mask"), ({"level": "word"}, "level")):
        with pytest.raises(BadValue, match=message):
            ImportanceOptions(**options)
    with pytest.raises(BadValue, match="is_mask_low must be less"):
        make_algorithm("rebn", is_mask_low=2.0, is_mask_high=1.0)

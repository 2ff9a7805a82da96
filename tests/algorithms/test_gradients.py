"""Compare the gradients of every loss and algorithm with central differences, in float64, on a two-layer model."""

from __future__ import annotations

from collections.abc import Callable
from math import exp

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palestra.algorithms import Episode, LossOptions, to_tokens
from palestra.algorithms.losses import (
    Denominators,
    LossInputs,
    dpo_loss,
    policy_loss,
    sequence_logprobs,
    sft_loss,
    value_loss,
)
from tests.algorithms.batches import POLICY_GRADIENTS, episodes, policy_gradient
from tests.algorithms.tensors import TwoLayers

seeds = st.integers(0, 2**32)
STEP = 1e-6


def differences(model: TwoLayers, value: Callable[[], float]) -> list[Tensor]:
    """Return the central differences of the value with respect to each parameter."""
    result = []
    with torch.no_grad():
        for parameter in model.parameters:
            flat = parameter.view(-1)
            gradient = torch.zeros_like(flat)
            for i in range(len(flat)):
                here = flat[i].item()
                flat[i] = here + STEP
                above = value()
                flat[i] = here - STEP
                below = value()
                flat[i] = here
                gradient[i] = (above - below) / (2 * STEP)
            result.append(gradient.view_as(parameter))
    return result


def check(model: TwoLayers, loss: Callable[[], Tensor], value: Callable[[], float] | None = None) -> None:
    exact = torch.autograd.grad(loss(), model.parameters, allow_unused=True)
    wanted = differences(model, value or (lambda: loss().item()))
    for got, expected in zip(exact, wanted, strict=True):
        assert torch.allclose(torch.zeros_like(expected) if got is None else got, expected, rtol=1e-5, atol=1e-7)


class Data:
    """Token ids with prompts and padding, and their log-probabilities under other policies."""

    def __init__(self, seed: int, rows: int = 3, width: int = 5) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.model = TwoLayers.of(seed + 1)
        self.ids = torch.randint(0, 5, (rows, width + 1), generator=rng)
        self.mask = torch.rand(rows, width, generator=rng) < 0.7
        self.mask[0, 0] = True
        self.advantages = torch.randn(rows, width, generator=rng, dtype=torch.float64)
        with torch.no_grad():
            now, _ = self.model.read(self.ids)
            noise = 0.4 * torch.randn(3, rows, width, generator=rng, dtype=torch.float64)
            self.old, self.proximal, self.ref = (now + n for n in noise)

    def inputs(self, *, corrected: bool = False, sequences: bool = False) -> LossInputs:
        logprobs, entropy = self.model.read(self.ids)
        return LossInputs(
            logprobs=logprobs,
            old_logprobs=self.old,
            advantages=self.advantages,
            mask=self.mask,
            proximal_logprobs=self.proximal if corrected else None,
            weights=(self.proximal - self.old).exp() if corrected else None,
            ratio_ids=torch.arange(len(self.ids))[:, None].expand_as(self.mask) if sequences else None,
            ref_logprobs=self.ref,
            entropy=entropy,
        )


OPTIONS = {
    "ppo": LossOptions(),
    "asymmetric": LossOptions(clip_low=0.1, clip_high=0.3),
    "free": LossOptions(clip_low=None, clip_high=None),
    "sequence": LossOptions(aggregate="sequence"),
    "constant": LossOptions(aggregate="constant", clip_high=None),
    "k2": LossOptions(kl_coef=0.5, kl_estimator="k2"),
    "k3": LossOptions(kl_coef=0.5, kl_estimator="k3", aggregate="sequence"),
    "entropy": LossOptions(entropy_coef=0.3),
    "gspo": LossOptions(clip_low=0.05, clip_high=0.1, aggregate="sequence"),
    "corrected": LossOptions(kl_coef=0.1, entropy_coef=0.1),
}


@pytest.mark.parametrize("name", OPTIONS)
@settings(max_examples=3)
@given(seed=seeds)
def test_policy_loss(name: str, seed: int) -> None:
    data = Data(seed)
    denominators = Denominators.of(data.mask, length=9.0)

    def loss() -> Tensor:
        inputs = data.inputs(corrected=name == "corrected", sequences=name == "gspo")
        return policy_loss(inputs, denominators, OPTIONS[name]).loss

    check(data.model, loss)


@settings(max_examples=3)
@given(seed=seeds)
def test_cispo(seed: int) -> None:
    """Compute the central differences with constant clipped ratios, because these have no gradient."""
    data = Data(seed)
    denominators = Denominators.of(data.mask)
    ratios = (data.inputs().logprobs.detach() - data.old).exp().clamp(max=1.1)
    options = LossOptions(objective="cispo", clip_low=None, clip_high=0.1)

    def objective() -> float:
        terms = ratios * data.advantages * data.model.read(data.ids)[0]
        return -float(terms[data.mask].sum() / data.mask.sum())

    check(data.model, lambda: policy_loss(data.inputs(), denominators, options).loss, objective)


@settings(max_examples=3)
@given(seed=seeds)
def test_straight_through_kl(seed: int) -> None:
    """Check that the straight-through estimator has the value of k1 and the gradient of k2."""
    data = Data(seed)
    denominators = Denominators.of(data.mask)
    data.advantages.zero_()
    through = LossOptions(kl_coef=1.0, kl_estimator="k1", kl_straight_through=True)

    def k2() -> float:
        return policy_loss(data.inputs(), denominators, LossOptions(kl_coef=1.0, kl_estimator="k2")).loss.item()

    check(data.model, lambda: policy_loss(data.inputs(), denominators, through).loss, k2)


@settings(max_examples=3)
@given(seed=seeds)
def test_value_loss(seed: int) -> None:
    data = Data(seed)
    for clip in (None, 0.3):

        def loss(clip: float | None = clip) -> Tensor:
            values = data.model.values(data.ids[:, :-1])
            return value_loss(values, data.advantages, data.mask, denominator=7.0, old_values=data.old, clip=clip).loss

        check(data.model, loss)


@settings(max_examples=3)
@given(seed=seeds)
def test_sft_loss(seed: int) -> None:
    data = Data(seed)
    weights = data.advantages.abs()
    denominators = Denominators.of(data.mask, weights=weights)
    check(data.model, lambda: sft_loss(data.model.read(data.ids)[0], weights, data.mask, denominators).loss)


@settings(max_examples=3)
@given(seed=seeds)
def test_dpo_loss(seed: int) -> None:
    data = Data(seed, rows=5)
    owner = torch.tensor([0, 1, 2, 3, 3])

    def loss() -> Tensor:
        now = sequence_logprobs(data.model.read(data.ids)[0], data.mask, owner, 4)
        ref = sequence_logprobs(data.ref, data.mask, owner, 4)
        return dpo_loss(now[:2], now[2:], ref[:2], ref[2:], pairs=2, beta=0.3, smoothing=0.1).loss

    check(data.model, loss)


@pytest.mark.parametrize("name", POLICY_GRADIENTS)
@settings(max_examples=3)
@given(batch=episodes(groups=True), seed=seeds)
def test_every_algorithm_from_rewards_to_weights(name: str, batch: list[Episode], seed: int) -> None:
    """Compare the gradient with central differences of the clipped objective, computed from rewards in plain loops."""
    batch = batch[:4] if not policy_gradient(name).needs_groups else [e for e in batch if e.group == 0]
    algorithm = policy_gradient(name)
    advantages_of = algorithm.advantages(batch)
    rows = [list(e.token_turns or ()) for e in batch]
    width = 2 * max(map(len, rows))
    rng = torch.Generator().manual_seed(seed)
    model = TwoLayers.of(seed)
    ids = torch.randint(0, 5, (len(rows), width + 1), generator=rng)
    # An observation token precedes each sampled token.
    index = [[turn if i % 2 else -1 for turn in row for i in (0, 1)] for row in rows]
    advantages, mask = torch.zeros(len(rows), width, dtype=torch.float64), torch.zeros(len(rows), width)
    for b, (row, turns) in enumerate(zip(advantages_of.advantages, index, strict=True)):
        if algorithm.level == "token":
            per_token = [0.0] * len(turns)
            per_token[1::2] = row
        else:
            per_token = to_tokens(row, turns)
        advantages[b, : len(turns)] = torch.tensor(per_token, dtype=torch.float64)
        mask[b, : len(turns)] = (torch.tensor(turns) >= 0).float()
    with torch.no_grad():
        old = model.read(ids)[0] + 0.3 * torch.randn(len(rows), width, generator=rng, dtype=torch.float64)

    def loss() -> Tensor:
        now, _ = model.read(ids)
        inputs = LossInputs(logprobs=now, old_logprobs=old, advantages=advantages, mask=mask)
        return policy_loss(inputs, Denominators.of(mask)).loss

    def in_loops() -> float:
        now = model.read(ids)[0].tolist()
        total, count = 0.0, 0
        for b, turns in enumerate(index):
            position = 0
            for t, turn in enumerate(turns):
                if turn < 0:
                    continue
                a = advantages_of.advantages[b][position if algorithm.level == "token" else turn]
                position += 1
                r = exp(now[b][t] - old[b, t].item())
                total -= min(r * a, min(max(r, 0.8), 1.2) * a)
                count += 1
        return total / count

    with torch.no_grad():
        assert loss().item() == pytest.approx(in_loops(), rel=1e-9, abs=1e-12)
    check(model, loss, in_loops)

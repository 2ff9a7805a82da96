"""Compare the values and gradients of the three KL estimators with exact expectations over all tokens."""

from __future__ import annotations

from math import exp, nan
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palestra.algorithms import LossOptions
from palestra.algorithms.losses import kl_estimate, kl_reward
from palestra.errors import BadValue
from tests.algorithms.tensors import batch

seeds = st.integers(0, 2**32)


def distributions(seed: int, apart: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return log p (with gradient) and log ref over six tokens."""
    rng = torch.Generator().manual_seed(seed)
    base = torch.randn(6, generator=rng, dtype=torch.float64)
    other = base + apart * torch.randn(6, generator=rng, dtype=torch.float64)
    return torch.log_softmax(base.requires_grad_(), 0), torch.log_softmax(other.detach(), 0)


@settings(max_examples=25)
@given(seeds)
def test_kl_in_expectation(seed: int) -> None:
    """Compute the expectation as a sum over all tokens weighted by probability, without sampling."""
    p, ref = distributions(seed)
    kl = (p.exp() * (p - ref)).sum().item()
    for estimator in ("k1", "k3"):
        assert (p.exp() * kl_estimate(p, ref, estimator)).sum().item() == pytest.approx(kl, abs=1e-12)
    assert (kl_estimate(p, ref, "k2") >= 0).all()
    assert (kl_estimate(p, ref, "k3") >= 0).all()


@settings(max_examples=25)
@given(seeds, st.sampled_from([1.0, 0.1, 0.01]))
def test_k2_is_accurate_to_third_order(seed: int, apart: float) -> None:
    """Check that the expectation of k2 differs from the KL by at most the Taylor remainder |d|^3 e^|d| / 6."""
    p, ref = distributions(seed, apart)
    kl = (p.exp() * (p - ref)).sum().item()
    far = (p - ref).abs().max().item()
    assert abs((p.exp() * kl_estimate(p, ref, "k2")).sum().item() - kl) <= far**3 * exp(far) / 6 + 1e-12


@settings(max_examples=25)
@given(seeds)
def test_kl_gradients_in_expectation(seed: int) -> None:
    """Check the gradients stated in `kl_estimate`'s docstring; the sampled tokens are treated as constants."""
    p, ref = distributions(seed)

    def gradient(number: Tensor) -> Tensor:
        (result,) = torch.autograd.grad(number, p, retain_graph=True)
        return result - p.exp().detach() * result.sum()  # gradient with respect to the logits

    weights = p.exp().detach()
    reverse = gradient((p.exp() * (p - ref)).sum())
    forward = gradient((ref.exp() * (ref - p)).sum())

    def of(estimator: Any, through: bool = False) -> Tensor:
        return gradient((weights * kl_estimate(p, ref, estimator, straight_through=through)).sum())

    assert torch.allclose(of("k1"), torch.zeros_like(p), atol=1e-10)
    assert torch.allclose(of("k2"), reverse, atol=1e-10)
    assert torch.allclose(of("k3"), forward, atol=1e-10)
    for estimator in ("k1", "k3"):
        assert torch.allclose(of(estimator, through=True), reverse, atol=1e-10)
        through = kl_estimate(p, ref, estimator, straight_through=True)
        assert torch.allclose(through, kl_estimate(p, ref, estimator), atol=1e-12)


@settings(max_examples=25)
@given(seeds)
def test_kl_as_a_reward(seed: int) -> None:
    inputs = batch(seed)
    assert inputs.ref_logprobs is not None
    for estimator in ("k1", "k2", "k3"):
        dirty = inputs.ref_logprobs.masked_fill(~inputs.mask, nan)
        result = kl_reward(inputs.logprobs, dirty, inputs.mask, estimator)
        assert not result.requires_grad
        assert (result[~inputs.mask] == 0).all()
        expected = kl_estimate(inputs.logprobs.detach(), inputs.ref_logprobs, estimator)
        assert torch.equal(result[inputs.mask], expected[inputs.mask])


def test_k1_in_the_loss_is_rejected() -> None:
    with pytest.raises(BadValue, match="is zero on average.*Use k2 or k3"):
        LossOptions(kl_coef=0.1, kl_estimator="k1")

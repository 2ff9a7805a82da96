"""Test the value, SFT and DPO losses: formulas, masks and micro-batches."""

from __future__ import annotations

from math import exp, inf, log, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.algorithms.losses import Denominators, combine, dpo_loss, sequence_logprobs, sft_loss, value_loss
from tests.algorithms.tensors import batch

seeds = st.integers(0, 2**32)


@pytest.mark.parametrize("clip", [None, 0.2])
@settings(max_examples=25)
@given(seed=seeds)
def test_value_loss(clip: float | None, seed: int) -> None:
    inputs = batch(seed)
    values, returns, old = inputs.logprobs, inputs.advantages, inputs.old_logprobs
    output = value_loss(values, returns, inputs.mask, denominator=13.0, old_values=old, clip=clip)
    total = fraction = 0.0
    for v, g, o, m in zip(*(t.flatten().tolist() for t in (values, returns, old, inputs.mask)), strict=True):
        if m:
            held = v if clip is None else min(max(v, o - clip), o + clip)
            total += 0.5 * max((v - g) ** 2, (held - g) ** 2)
            fraction += (held - g) ** 2 > (v - g) ** 2
    assert output.loss.item() == pytest.approx(total / 13.0, abs=1e-10)
    assert output.metrics["value_clip_fraction"].item() == pytest.approx(fraction / 13.0, abs=1e-10)
    spoiled = values.detach().masked_fill(~inputs.mask, nan).requires_grad_()
    bad = [t.masked_fill(~inputs.mask, inf) for t in (returns, old)]
    dirty = value_loss(spoiled, bad[0], inputs.mask, denominator=13.0, old_values=bad[1], clip=clip)
    assert dirty.loss.item() == output.loss.item()
    (gradient,) = torch.autograd.grad(dirty.loss, spoiled)
    assert (gradient[~inputs.mask] == 0).all()
    assert gradient.isfinite().all()
    halves = [
        value_loss(values[s], returns[s], inputs.mask[s], denominator=13.0, old_values=old[s], clip=clip).loss.item()
        for s in (slice(0, 1), slice(1, None))
    ]
    assert sum(halves) == pytest.approx(output.loss.item(), abs=1e-10)


@settings(max_examples=25)
@given(seeds)
def test_sft_loss_is_a_weighted_mean(seed: int) -> None:
    inputs = batch(seed)
    row_weights = torch.tensor([1.0, 0.0, 2.0, 0.5], dtype=torch.float64)
    weights = row_weights[:, None].expand_as(inputs.logprobs).masked_fill(~inputs.mask, nan)
    logprobs = inputs.logprobs.detach().masked_fill(~inputs.mask, nan).requires_grad_()
    counted = Denominators.of(inputs.mask, weights=weights)
    tokens, sequences = [0.0, 0.0], [0.0, 0.0]
    for row, mask, weight in zip(inputs.logprobs.tolist(), inputs.mask.tolist(), row_weights.tolist(), strict=True):
        nlls = [-x for x, m in zip(row, mask, strict=True) if m]
        if nlls:
            tokens = [tokens[0] + weight * sum(nlls), tokens[1] + weight * len(nlls)]
            sequences = [sequences[0] + weight * sum(nlls) / len(nlls), sequences[1] + weight]
    result = sft_loss(logprobs, weights, inputs.mask, counted)
    assert result.loss.item() == pytest.approx(tokens[0] / tokens[1], abs=1e-10)
    by_row = sft_loss(logprobs, weights, inputs.mask, counted, how="sequence")
    assert by_row.loss.item() == pytest.approx(sequences[0] / sequences[1], abs=1e-10)
    (gradient,) = torch.autograd.grad(result.loss, logprobs)
    assert (gradient[~inputs.mask] == 0).all()
    assert (gradient[1] == 0).all(), "a trajectory with weight 0 must have no gradient"


@settings(max_examples=25)
@given(seeds, st.floats(0.01, 2), st.floats(0, 0.4))
def test_dpo_loss(seed: int, beta: float, smoothing: float) -> None:
    rng = torch.Generator().manual_seed(seed)
    four = list(4 * torch.randn(4, 5, generator=rng, dtype=torch.float64))
    output = dpo_loss(*four, pairs=5, beta=beta, smoothing=smoothing)
    total, right = 0.0, 0
    for c, r, ref_c, ref_r in zip(*(x.tolist() for x in four), strict=True):
        h = beta * ((c - ref_c) - (r - ref_r))
        total += -(1 - smoothing) * log(1 / (1 + exp(-h))) - smoothing * log(1 / (1 + exp(h)))
        right += h > 0
    assert output.loss.item() == pytest.approx(total / 5, abs=1e-9)
    assert output.metrics["accuracy"].item() == pytest.approx(right / 5)
    halves = [dpo_loss(*(x[s] for x in four), pairs=5, beta=beta, smoothing=smoothing) for s in (slice(2), slice(2, 5))]
    assert combine(h.metrics for h in halves) == pytest.approx(combine([output.metrics]), abs=1e-10)


@settings(max_examples=25)
@given(seeds)
def test_sequence_logprobs(seed: int) -> None:
    """Sum the log-probabilities of trajectories that occupy one row, several rows or part of a row."""
    inputs = batch(seed)
    dirty = inputs.logprobs.detach().masked_fill(~inputs.mask, nan).requires_grad_()
    result = sequence_logprobs(dirty, inputs.mask, torch.tensor([2, 0, 2, 1]), 4)
    rows = [
        sum(x for x, m in zip(a, b, strict=True) if m)
        for a, b in zip(dirty.tolist(), inputs.mask.tolist(), strict=True)
    ]
    assert result.tolist() == pytest.approx([rows[1], rows[3], rows[0] + rows[2], 0.0])
    owner = torch.tensor([2, 0, 2, 1])[:, None].expand_as(inputs.mask).masked_fill(~inputs.mask, -7)
    assert torch.equal(sequence_logprobs(dirty, inputs.mask, owner, 4), result)
    (gradient,) = torch.autograd.grad(result.sum(), dirty)
    assert torch.equal(gradient, inputs.mask.double())

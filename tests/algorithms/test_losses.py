"""Compare losses with plain loops, and check that masks, micro-batches, padding and packing do not change them."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, nan
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from palestra.algorithms import LossOptions
from palestra.algorithms.losses import (
    Denominators,
    LossInputs,
    LossOutput,
    aggregate,
    combine,
    policy_loss,
    ratio,
    value_loss,
)
from palestra.errors import BadValue
from tests.algorithms.tensors import NAMES, batch, mapped, without

seeds = st.integers(0, 2**32)
OPTIONS = {
    "ppo": LossOptions(),
    "asymmetric": LossOptions(clip_low=0.2, clip_high=0.28),
    "lower side": LossOptions(clip_low=0.1, clip_high=None),
    "upper side": LossOptions(clip_low=None, clip_high=0.1),
    "free": LossOptions(clip_low=None, clip_high=None),
    "dual clip": LossOptions(clip_high=0.1, clip_dual=1.3),
    "sequence": LossOptions(aggregate="sequence"),
    "dr grpo": LossOptions(aggregate="constant"),
    "cispo": LossOptions(objective="cispo", clip_low=0.3, clip_high=0.2),
    "cispo with one bound": LossOptions(objective="cispo", clip_low=None, clip_high=0.1, aggregate="sequence"),
    "gspo": LossOptions(clip_low=0.1, clip_high=0.15, aggregate="sequence"),
    "k1": LossOptions(kl_coef=0.3, kl_estimator="k1", kl_straight_through=True),
    "k2": LossOptions(kl_coef=0.3, kl_estimator="k2", aggregate="sequence"),
    "k3": LossOptions(kl_coef=0.3),
    "entropy": LossOptions(entropy_coef=0.2, aggregate="constant"),
    "weighted entropy": LossOptions(entropy_coef=0.2, aggregate="sequence"),
    "corrected": LossOptions(),
    "corrected gspo": LossOptions(clip_low=0.1, clip_high=0.15),
    "corrected cispo": LossOptions(objective="cispo", clip_high=0.4, kl_coef=0.1, entropy_coef=0.1),
}


def inputs_for(name: str, seed: int) -> LossInputs:
    unused = [] if name.startswith("corrected") else ["proximal_logprobs", "weights"]
    unused += [] if name.startswith("weighted") else ["entropy_weights"]
    return without(batch(seed), *unused, *([] if "gspo" in name else ["ratio_ids"]))


def count(inputs: LossInputs) -> Denominators:
    return Denominators.of(inputs.mask, lengths=inputs.lengths, length=11.0)


def in_loops(inputs: LossInputs, options: LossOptions) -> float:
    """Compute the formula of `policy_loss` token by token with Python floats."""
    mask = inputs.mask.tolist()
    columns: dict[str, Any] = {name: t.tolist() for name in NAMES if (t := getattr(inputs, name)) is not None}
    ids = mask if inputs.ratio_ids is None else inputs.ratio_ids.tolist()
    tokens = sum(map(sum, mask))
    sequences = sum(any(row) for row in mask)
    total = 0.0
    for b, row in enumerate(mask):
        for t, sampled in enumerate(row):
            if not sampled:
                continue
            at = {name: column[b][t] for name, column in columns.items()}
            now, advantage = at["logprobs"], at["advantages"]
            start = columns.get("proximal_logprobs", columns["old_logprobs"])
            same = [
                (x, y)
                for x, row_ids in enumerate(ids)
                for y, number in enumerate(row_ids)
                if mask[x][y] and ((x, y) == (b, t) if inputs.ratio_ids is None else number == ids[b][t])
            ]
            r = exp(sum(columns["logprobs"][x][y] - start[x][y] for x, y in same) / len(same))
            low = -inf if options.clip_low is None else 1 - options.clip_low
            high = inf if options.clip_high is None else 1 + options.clip_high
            bounded = min(max(r, low), high)
            gain = min(r * advantage, bounded * advantage)
            if options.clip_dual is not None and advantage < 0:
                gain = max(gain, options.clip_dual * advantage)
            if options.objective == "cispo":
                gain = bounded * advantage * now
            number = -at.get("weights", 1.0) * gain
            d = now - at["ref_logprobs"]
            number += options.kl_coef * {"k1": d, "k2": d * d / 2, "k3": exp(-d) - 1 + d}[options.kl_estimator]
            number -= options.entropy_coef * at["entropy"] * at.get("entropy_weights", 1.0)
            by = {"token": tokens, "sequence": sum(row) * sequences, "constant": 11.0 * sequences}[options.aggregate]
            total += number / by
    return total


@pytest.mark.parametrize("name", OPTIONS)
@settings(max_examples=12)
@given(seed=seeds)
def test_the_policy_loss_equals_its_formula(name: str, seed: int) -> None:
    inputs = inputs_for(name, seed)
    result = policy_loss(inputs, count(inputs), OPTIONS[name])
    assert result.loss.item() == pytest.approx(in_loops(inputs, OPTIONS[name]), rel=1e-10, abs=1e-12)
    assert result.metrics["loss"].item() == result.loss.item()


def gradients(loss: Tensor, inputs: LossInputs) -> list[Tensor]:
    """Return the gradients with respect to log-probabilities and entropies."""
    assert inputs.entropy is not None
    return list(torch.autograd.grad(loss, [inputs.logprobs, inputs.entropy], allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("name", OPTIONS)
@settings(max_examples=6)
@given(seed=seeds, garbage=st.sampled_from([nan, inf, -inf, 1e30]))
def test_no_masked_token_has_gradient_or_influence(name: str, seed: int, garbage: float) -> None:
    inputs = inputs_for(name, seed)
    outside = ~inputs.mask

    def spoiled(tensor: Tensor, filler: object) -> Tensor:
        if filler is False or not tensor.is_floating_point():
            return tensor
        return tensor.detach().masked_fill(outside, garbage).requires_grad_(tensor.requires_grad)

    dirty = mapped(inputs, spoiled)
    clean = policy_loss(inputs, count(inputs), OPTIONS[name])
    result = policy_loss(dirty, count(dirty), OPTIONS[name])
    assert result.loss.item() == clean.loss.item()
    assert combine([result.metrics]) == combine([clean.metrics])
    wanted = gradients(clean.loss, inputs)
    for got, expected in zip(gradients(result.loss, dirty), wanted, strict=True):
        assert torch.equal(got, expected)
        assert (got[outside] == 0).all()


def parts(inputs: LossInputs, cuts: list[int]) -> list[LossInputs]:
    """Split the batch at the rows `cuts`; the width of each part is the length of its longest row."""
    result = []
    for start, end in zip([0, *cuts], [*cuts, inputs.mask.shape[0]], strict=True):
        used = inputs.mask[start:end].any(0).nonzero()
        width = max(1, int(used.max()) + 1) if len(used) else 1

        def piece(tensor: Tensor, _: object, rows: slice = slice(start, end), width: int = width) -> Tensor:
            return tensor[rows, :width]

        result.append(mapped(inputs, piece))
    return result


@pytest.mark.parametrize("name", OPTIONS)
@settings(max_examples=6)
@given(seed=seeds, cuts=st.sets(st.integers(1, 3)), padding=st.integers(0, 5), extra_rows=st.integers(0, 2))
def test_micro_batches_and_padding(name: str, seed: int, cuts: set[int], padding: int, extra_rows: int) -> None:
    inputs = inputs_for(name, seed)
    options = OPTIONS[name]
    whole = policy_loss(inputs, count(inputs), options)
    (wanted,) = torch.autograd.grad(whole.loss, inputs.logprobs)

    def padded(tensor: Tensor, filler: Any) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, padding, 0, extra_rows), value=filler)

    for pieces in (parts(inputs, sorted(cuts)), [mapped(inputs, padded)]):
        counted = [count(piece) for piece in pieces]
        denominators = counted[0]
        for other in counted[1:]:
            denominators = denominators + other
        result = [policy_loss(piece, denominators, options) for piece in pieces]
        loss = sum((part.loss for part in result), torch.zeros((), dtype=torch.float64))
        assert abs(loss.item() - whole.loss.item()) < 1e-10
        (gradient,) = torch.autograd.grad(loss, inputs.logprobs)
        assert (gradient - wanted).abs().max() < 1e-10
        assert combine(p.metrics for p in result) == pytest.approx(combine([whole.metrics]), abs=1e-10)


@pytest.mark.parametrize("name", OPTIONS)
@settings(max_examples=6)
@given(seed=seeds)
def test_packing(name: str, seed: int) -> None:
    """Concatenate all sequences in one row; `lengths` contains the sequence length of each token."""
    inputs = inputs_for(name, seed)
    options = OPTIONS[name]
    whole = policy_loss(inputs, count(inputs), options).loss
    packed = mapped(inputs, lambda tensor, _: tensor.reshape(1, -1))
    lengths = inputs.mask.sum(1, keepdim=True).expand_as(inputs.mask).reshape(1, -1)
    packed = replace(packed, lengths=lengths)
    assert count(packed).sequences == pytest.approx(count(inputs).sequences)
    assert policy_loss(packed, count(packed), options).loss.item() == pytest.approx(whole.item(), abs=1e-10)


@settings(max_examples=25)
@given(seeds)
def test_a_sequence_may_span_several_rows(seed: int) -> None:
    inputs = without(batch(seed, rows=2), "proximal_logprobs")
    one = mapped(inputs, lambda tensor, _: tensor.reshape(1, -1))
    several = replace(inputs, lengths=inputs.mask.sum().expand_as(inputs.mask))
    options = LossOptions(aggregate="sequence")
    assert count(several).sequences == pytest.approx(1)
    wanted = policy_loss(one, count(one), options).loss.item()
    assert policy_loss(several, count(several), options).loss.item() == pytest.approx(wanted, abs=1e-10)


@settings(max_examples=25)
@given(seeds)
def test_masks_of_any_type(seed: int) -> None:
    inputs = without(batch(seed), "proximal_logprobs")
    for dtype in (torch.float32, torch.float64, torch.int64):
        other = replace(inputs, mask=inputs.mask.to(dtype))
        assert count(other) == count(inputs)
        assert policy_loss(other, count(other)).loss.item() == policy_loss(inputs, count(inputs)).loss.item()


def test_on_policy_the_gradient_is_reinforce() -> None:
    """Check that every loss variant has the gradient of -A log p if p = p_old, with and without clipping."""
    inputs = without(batch(3), "proximal_logprobs", "weights", "ratio_ids")
    inputs = replace(inputs, old_logprobs=inputs.logprobs.detach())
    wanted = -inputs.advantages.masked_fill(~inputs.mask, 0.0) / inputs.mask.sum()
    for name in ("ppo", "asymmetric", "free", "cispo"):
        (gradient,) = torch.autograd.grad(policy_loss(inputs, count(inputs), OPTIONS[name]).loss, inputs.logprobs)
        assert torch.allclose(gradient, wanted, atol=1e-12), name


@settings(max_examples=25)
@given(seeds)
def test_cispo_has_a_gradient_at_clipped_tokens(seed: int) -> None:
    """Check that the gradient is -w clip(r) A at every token, even where the ratio is clipped."""
    inputs = without(batch(seed), "proximal_logprobs", "ratio_ids")
    options = LossOptions(objective="cispo", clip_low=0.1, clip_high=0.2)
    output = policy_loss(inputs, count(inputs), options)
    (gradient,) = torch.autograd.grad(output.loss, inputs.logprobs)
    r = (inputs.logprobs - inputs.old_logprobs).exp().detach()
    assert inputs.weights is not None
    wanted = -inputs.weights * r.clamp(0.9, 1.2) * inputs.advantages / inputs.mask.sum()
    assert torch.allclose(gradient, wanted.masked_fill(~inputs.mask, 0.0), atol=1e-12)
    outside = ((r < 0.9) | (r > 1.2))[inputs.mask].double().mean().item()
    assert output.metrics["clip_fraction"].item() == pytest.approx(outside, abs=1e-12)


@settings(max_examples=25)
@given(seeds)
def test_the_tokens_of_a_gspo_sequence_have_the_same_gradient(seed: int) -> None:
    inputs = without(batch(seed), "proximal_logprobs", "weights")
    assert inputs.ratio_ids is not None
    ids = inputs.ratio_ids.masked_fill(~inputs.mask, -1)
    advantages = torch.randn(int(ids.max()) + 2, dtype=torch.float64)[ids]  # equal for all tokens of a sequence
    inputs = replace(inputs, advantages=advantages)
    output = policy_loss(inputs, count(inputs), LossOptions(clip_low=None, clip_high=None))
    (gradient,) = torch.autograd.grad(output.loss, inputs.logprobs)
    log_ratios = (inputs.logprobs - inputs.old_logprobs).detach()
    for number in range(int(ids.max()) + 1):
        own = (ids == number) & inputs.mask
        wanted = -advantages[own] * log_ratios[own].mean().exp() / inputs.mask.sum()
        assert torch.allclose(gradient[own], wanted, atol=1e-12)


@settings(max_examples=25)
@given(seeds)
def test_proximal_logprobs_of_the_same_policy_change_nothing(seed: int) -> None:
    inputs = without(batch(seed), "weights")
    same = replace(inputs, proximal_logprobs=inputs.old_logprobs)
    bare = without(inputs, "proximal_logprobs")
    assert policy_loss(same, count(same)).loss.item() == pytest.approx(policy_loss(bare, count(bare)).loss.item())


@settings(max_examples=25)
@given(seeds)
def test_metrics(seed: int) -> None:
    inputs = without(batch(seed), "proximal_logprobs", "ratio_ids")
    result = combine([policy_loss(inputs, count(inputs), LossOptions(clip_low=0.1, clip_high=0.2)).metrics])
    now, old = inputs.logprobs.detach()[inputs.mask], inputs.old_logprobs[inputs.mask]
    r, a = (now - old).exp(), inputs.advantages[inputs.mask]
    clipped = ((r > 1.2) & (a > 0)) | ((r < 0.9) & (a < 0))
    assert inputs.entropy is not None
    wanted = {
        "clip_fraction": clipped.double().mean(),
        "ratio_mean": r.mean(),
        "ratio_max": r.max(),
        "ratio_min": r.min(),
        "approx_kl": (r - 1 - (now - old)).mean(),
        "nll": -now.mean(),
        "entropy": inputs.entropy.detach()[inputs.mask].mean(),
    }
    for name, number in wanted.items():
        assert result[name] == pytest.approx(number.item(), abs=1e-10), name


def test_extreme_ratios_stay_finite() -> None:
    logprobs = torch.tensor([[0.0, -500.0, -1e4]], dtype=torch.float32, requires_grad=True)
    inputs = LossInputs(
        logprobs=logprobs,
        old_logprobs=torch.tensor([[-1e4, 0.0, -inf]]),
        advantages=torch.tensor([[-1.0, 1.0, 0.0]]),
        ref_logprobs=torch.tensor([[-500.0, 0.0, 0.0]]),
        mask=torch.ones(1, 3),
    )
    output = policy_loss(inputs, Denominators.of(inputs.mask), LossOptions(kl_coef=0.1))
    (gradient,) = torch.autograd.grad(output.loss, logprobs)
    assert gradient.isfinite().all()
    assert output.loss.isfinite()
    assert ratio(torch.zeros(1), torch.full((1,), -inf)).isfinite()


def refuse(message: str, call: Any) -> None:
    with pytest.raises(BadValue, match=message):
        call()


def test_invalid_inputs_are_rejected() -> None:
    batch_inputs = batch(0)
    bare = without(batch_inputs, "proximal_logprobs", "ref_logprobs", "entropy")
    counted = count(batch_inputs)
    refuse("kl_coef needs ref_logprobs", lambda: policy_loss(bare, counted, LossOptions(kl_coef=0.1)))
    refuse("entropy_coef needs the entropy", lambda: policy_loss(bare, counted, LossOptions(entropy_coef=0.1)))
    refuse("advantages must have shape", lambda: replace(bare, advantages=batch_inputs.advantages[:, :1]))
    refuse(
        "returns must have shape",
        lambda: value_loss(batch_inputs.logprobs, batch_inputs.advantages[:1], batch_inputs.mask, denominator=1),
    )
    three = batch_inputs.logprobs, batch_inputs.advantages, batch_inputs.mask
    refuse("value clipping needs old_values", lambda: value_loss(*three, denominator=1.0, clip=0.2))
    empty = Denominators.of(torch.zeros(2, 3))
    refuse("no sampled token", lambda: aggregate(torch.zeros(2, 3), torch.zeros(2, 3), empty))
    refuse("same length constant", lambda: counted + empty)
    for options in (
        {"clip_low": 1.5},
        {"clip_high": -1.0},
        {"clip_dual": 1.0},
        {"aggregate": "mean"},
        {"objective": "vpg"},
    ):
        refuse(next(iter(options)), lambda options=options: LossOptions(**options))
    for options in ({"kl_estimator": "k4"}, {"kl_coef": nan}):
        refuse(next(iter(options)), lambda options=options: LossOptions(**options))


def test_an_empty_micro_batch_has_zero_loss() -> None:
    """Check the loss on a rank without samples, which still takes part in the backward pass."""
    batch_inputs = without(batch(0), "proximal_logprobs")
    empty = replace(batch_inputs, mask=torch.zeros_like(batch_inputs.mask))
    output: LossOutput = policy_loss(empty, count(batch_inputs))
    (gradient,) = torch.autograd.grad(output.loss, empty.logprobs)
    assert output.loss.item() == 0
    assert (gradient == 0).all()
    full = policy_loss(batch_inputs, count(batch_inputs))
    assert combine([full.metrics, output.metrics]) == combine([full.metrics])

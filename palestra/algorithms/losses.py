"""Tensors of a micro-batch -> the number to minimise, and what to say about it. Pure functions; needs torch.

Shapes: B rows, T tokens a row, P preference pairs. A mask marks the tokens the policy sampled; whatever stands
elsewhere (padding, prompts, NaN) reaches neither a loss nor a gradient.

A batch is too big for one backward pass, so it comes in micro-batches. Every loss here therefore divides by what the
whole batch holds (`Denominators`), not by what it sees: the sum over micro-batches is the loss of the batch, whatever
the split, the padding and the packing. Metrics add up the same way; `combine` does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from palestra.algorithms.options import Aggregate, KLEstimator, LossOptions
from palestra.errors import BadValue

FAR = 20.0  # nats: beyond this a ratio is "never", and its exponential would only overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """What the whole batch holds, over all micro-batches and ranks. They add up."""

    tokens: float  # sampled ones, each by its weight
    sequences: float  # with a sampled token, each by its weight
    length: float = 1.0  # Dr. GRPO's constant: the most tokens a sequence may sample

    @classmethod
    def of(
        cls, mask: Tensor, *, lengths: Tensor | None = None, weights: Tensor | None = None, length: float = 1.0
    ) -> Self:
        """Count one part of the batch; `lengths` as in LossInputs, `weights` [B, T] as in `sft_loss`."""
        kept = mask.bool()
        one = torch.ones_like(kept, dtype=torch.float32) if weights is None else weights
        share = one.masked_fill(~kept, 0.0).cpu().double()  # on the CPU, for not every device has float64
        each = _lengths(kept, lengths).cpu().double()
        return cls(tokens=share.sum().item(), sequences=(share / each).sum().item(), length=length)

    def __add__(self, other: Denominators) -> Denominators:
        if self.length != other.length:
            raise BadValue(f"one batch has one constant length, got {self.length} and {other.length}")
        return Denominators(
            tokens=self.tokens + other.tokens, sequences=self.sequences + other.sequences, length=self.length
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """One micro-batch, all [B, T]: entry t of a row speaks of the row's token t.

    Three policies may differ: the one that sampled (`old_logprobs`), the one being trained (`logprobs`), and the one
    the clip is centred on, which is the sampler's unless `anchor_logprobs` are given (the weights as they were before
    this batch, for samples that are older).
    """

    logprobs: Tensor  # carries the gradient
    old_logprobs: Tensor  # as the engine gave them
    advantages: Tensor
    mask: Tensor  # bool, or 0 and 1
    anchor_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    entropy: Tensor | None = None  # of the whole distribution at each token; carries gradient
    lengths: Tensor | None = None  # sampled tokens of the sequence a token is in; None: a row is a sequence

    def __post_init__(self) -> None:
        for name in ("old_logprobs", "advantages", "mask", "anchor_logprobs", "ref_logprobs", "entropy"):
            _same_shape(name, getattr(self, name), self.logprobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOutput:
    loss: Tensor  # a micro-batch's share of the batch's loss
    metrics: dict[str, Tensor]  # shares too, without gradient; names in _max and _min are extremes


def combine(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """The metrics of a batch from those of its micro-batches."""
    found: dict[str, float] = {}
    for part in parts:
        for name, tensor in part.items():
            value = tensor.item()
            if name not in found:
                found[name] = value
            elif name.endswith(("_max", "_min")):
                found[name] = (max if name.endswith("_max") else min)(found[name], value)
            else:
                found[name] += value
    return found


def aggregate(
    numbers: Tensor,
    mask: Tensor,
    denominators: Denominators,
    *,
    how: Aggregate = "token",
    lengths: Tensor | None = None,
) -> Tensor:
    """A number a token -> one number.

    token:    sum over the batch / tokens of the batch           every token counts the same
    sequence: mean over each sequence, mean over sequences       every sequence counts the same
    constant: sum over each sequence / length, mean over sequences    Dr. GRPO: no reward for being long or short
    """
    kept = mask.bool()
    by = {"token": denominators.tokens, "sequence": denominators.sequences}.get(
        how, denominators.sequences * denominators.length
    )
    if not by > 0:
        raise BadValue("the batch has no sampled token that counts, so there is nothing to average over; skip it")
    numbers = numbers.masked_fill(~kept, 0.0)
    if how == "sequence":
        numbers = numbers / _lengths(kept, lengths).to(numbers.dtype)
    return numbers.sum() / by


def policy_loss(inputs: LossInputs, denominators: Denominators, options: LossOptions | None = None) -> LossOutput:
    """L = agg(-w min(r A, clip(r, 1 - low, 1 + high) A)) + kl_coef agg(KL) - entropy_coef agg(H).

    r = p / p_old, w = 1. With an anchor: r = p / p_anchor, w = min(p_anchor / p_old, cap). With a cap and no anchor the
    anchor is p itself, held fixed: the gradient is that of -min(p / p_old, cap) A log p, the truncated importance-
    weighted policy gradient, where clipping has no meaning and is refused. Either way tokens with an importance weight
    outside `keep` give the policy term nothing; they still count in the denominators, so that a stale batch takes a
    smaller step.
    """
    options = options or LossOptions()
    kept = inputs.mask.bool()
    logprobs = inputs.logprobs.masked_fill(~kept, 0.0)
    old = inputs.old_logprobs.masked_fill(~kept, 0.0)
    advantages = inputs.advantages.masked_fill(~kept, 0.0)

    def total(numbers: Tensor) -> Tensor:
        return aggregate(numbers, kept, denominators, how=options.aggregate, lengths=inputs.lengths)

    def share(numbers: Tensor) -> Tensor:
        return aggregate(numbers.detach(), kept, denominators)

    anchor = None
    if inputs.anchor_logprobs is not None:
        anchor = inputs.anchor_logprobs.masked_fill(~kept, 0.0)
    elif options.cap is not None:
        if options.clips:
            raise BadValue(
                "cap and clip together need anchor_logprobs, on which the clip is centred; without them set clip_low "
                "and clip_high to None"
            )
        anchor = logprobs.detach()
    r = ratio(logprobs, old if anchor is None else anchor)
    origin = ratio((logprobs if anchor is None else anchor).detach(), old)  # today's chance of the sample to then's
    weight = torch.ones_like(origin) if anchor is None else origin
    if options.cap is not None:
        weight = weight.clamp(max=options.cap)
    if options.keep is not None:
        weight = weight * ((origin >= options.keep[0]) & (origin <= options.keep[1]))
    objective, clipped = surrogate(r, advantages, clip_low=options.clip_low, clip_high=options.clip_high)
    policy = loss = total(-weight * objective)
    moved = (logprobs - old).detach().clamp(-FAR, FAR)
    lately = moved if anchor is None else (logprobs - anchor).detach().clamp(-FAR, FAR)
    metrics = {
        "policy_loss": policy.detach(),
        "clip_fraction": share(clipped.to(r.dtype)),
        "approx_kl": share(torch.expm1(moved) - moved),  # of the sampler's policy to today's
        "step_kl": share(torch.expm1(lately) - lately),  # of the policy before this batch to today's
        "surprise": share(-logprobs),  # what entropy is on average
        "ratio_mean": share(r),
        "ratio_max": r.detach().masked_fill(~kept, -torch.inf).max(),
        "ratio_min": r.detach().masked_fill(~kept, torch.inf).min(),
    }
    if anchor is not None or options.keep is not None:
        metrics["importance_mean"] = share(origin)
        metrics["importance_max"] = origin.masked_fill(~kept, -torch.inf).max()
    if options.cap is not None:
        metrics["capped_fraction"] = share((origin > options.cap).to(r.dtype))
    if options.keep is not None:
        metrics["dropped_fraction"] = share((weight == 0).to(r.dtype))

    if inputs.ref_logprobs is not None:
        ref = inputs.ref_logprobs.masked_fill(~kept, 0.0)
        kl = kl_estimate(logprobs, ref, options.kl_estimator, straight_through=options.kl_straight_through)
        metrics["kl"] = share(kl)
        if options.kl_coef:
            loss = loss + options.kl_coef * total(kl)
    elif options.kl_coef:
        raise BadValue("kl_coef needs ref_logprobs, the sampled tokens' under the reference; or set it to 0")
    if inputs.entropy is not None:
        metrics["entropy"] = share(inputs.entropy)
        if options.entropy_coef:
            loss = loss - options.entropy_coef * total(inputs.entropy)
    elif options.entropy_coef:
        raise BadValue("entropy_coef needs entropy, the distribution's at each token; or set it to 0")
    return LossOutput(loss=loss, metrics=metrics | {"loss": loss.detach()})


def ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """p / p_old, kept inside what floats can hold."""
    return (logprobs - old_logprobs).clamp(-FAR, FAR).exp()


def surrogate(
    r: Tensor, advantages: Tensor, *, clip_low: float | None, clip_high: float | None
) -> tuple[Tensor, Tensor]:
    """min(r A, clip(r, 1 - low, 1 + high) A) for each token, and where the clip took hold (no gradient there)."""
    free = r * advantages
    if clip_low is None and clip_high is None:
        return free, torch.zeros_like(r, dtype=torch.bool)
    low = None if clip_low is None else 1 - clip_low
    high = None if clip_high is None else 1 + clip_high
    held = r.clamp(min=low, max=high) * advantages
    return torch.minimum(free, held), (held < free).detach()


def kl_estimate(
    logprobs: Tensor, ref_logprobs: Tensor, estimator: KLEstimator, *, straight_through: bool = False
) -> Tensor:
    """KL(p || ref) at each token from the one that was sampled, with d = log p - log ref.

    k1 = d                     unbiased, of high variance, may be negative; its gradient is zero on average
    k2 = d^2 / 2               biased to third order, never negative; its gradient is exactly the KL's on average
    k3 = exp(-d) - 1 + d       unbiased, never negative; its gradient is that of KL(ref || p) on average

    `straight_through` keeps the value and takes k2's gradient. "On average" is over samples of p itself.
    """
    d = logprobs - ref_logprobs
    k2 = d.square() / 2
    if estimator == "k2":
        return k2
    if estimator == "k1":
        value = d
    else:
        near = d.clamp(-FAR, FAR)
        value = torch.expm1(-near) + near
    return value.detach() + k2 - k2.detach() if straight_through else value


def kl_reward(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, estimator: KLEstimator = "k1") -> Tensor:
    """The KL of each sampled token [B, T], 0 elsewhere, as a cost: `turns.to_turns` sums it up for `Episode.kl`."""
    kept = mask.bool()
    with torch.no_grad():
        return kl_estimate(logprobs.masked_fill(~kept, 0.0), ref_logprobs.masked_fill(~kept, 0.0), estimator)


def value_loss(
    values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    denominator: float,
    old_values: Tensor | None = None,
    clip: float | None = None,
) -> LossOutput:
    """L = sum 1/2 max((V - G)^2, (clip(V, V_old - c, V_old + c) - G)^2) / denominator, all [B, T].

    The mask marks where a value was asked for (the end of each observation, or every sampled token); `denominator` is
    how many such places the batch has.
    """
    kept = mask.bool()
    for name, tensor in (("returns", returns), ("mask", mask), ("old_values", old_values)):
        _same_shape(name, tensor, values)
    values, returns = values.masked_fill(~kept, 0.0), returns.masked_fill(~kept, 0.0)
    error = (values - returns).square()
    held = error
    if clip is not None:
        if old_values is None:
            raise BadValue("clip needs old_values, what the critic said before the update; or set it to None")
        old = old_values.masked_fill(~kept, 0.0)
        held = (old + (values - old).clamp(-clip, clip) - returns).square()
    loss = torch.maximum(error, held).masked_fill(~kept, 0.0).sum() / 2 / denominator
    clipped = (held > error).to(values.dtype).sum() / denominator
    return LossOutput(loss=loss, metrics={"value_loss": loss.detach(), "value_clip_fraction": clipped.detach()})


def sft_loss(
    logprobs: Tensor,
    weights: Tensor,
    mask: Tensor,
    denominators: Denominators,
    *,
    how: Aggregate = "token",
    lengths: Tensor | None = None,
) -> LossOutput:
    """L = agg(-w log p), all [B, T]; with denominators counted by the same weights a weighted mean."""
    kept = mask.bool()
    _same_shape("weights", weights, logprobs)
    _same_shape("mask", mask, logprobs)
    surprise = -logprobs.masked_fill(~kept, 0.0) * weights.masked_fill(~kept, 0.0)
    loss = aggregate(surprise, kept, denominators, how=how, lengths=lengths)
    return LossOutput(loss=loss, metrics={"sft_loss": loss.detach()})


def sequence_logprobs(logprobs: Tensor, mask: Tensor, owner: Tensor, count: int) -> Tensor:
    """log p of each of `count` trajectories: the sum over its sampled tokens, whichever rows hold them.

    `owner` [B] or [B, T] says whose a row or token is.
    """
    kept = mask.bool()
    _same_shape("mask", mask, logprobs)
    owner = (owner[:, None] if owner.dim() == 1 else owner).expand_as(logprobs).masked_fill(~kept, 0)
    return logprobs.new_zeros(count).index_add(0, owner.flatten(), logprobs.masked_fill(~kept, 0.0).flatten())


def dpo_loss(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    *,
    pairs: float,
    beta: float = 0.1,
    smoothing: float = 0.0,
) -> LossOutput:
    """L = -sum((1 - s) log sigma(beta h) + s log sigma(-beta h)) / pairs;  h = log(p_c / ref_c) - log(p_r / ref_r).

    Log-probabilities of whole trajectories, [P]; `pairs` is how many the batch has. `smoothing` s is the share of pairs
    whose labels are believed to be the wrong way round.
    """
    for name, tensor in (("rejected", rejected), ("ref_chosen", ref_chosen), ("ref_rejected", ref_rejected)):
        _same_shape(name, tensor, chosen)
    won, lost = beta * (chosen - ref_chosen), beta * (rejected - ref_rejected)
    h = won - lost
    loss = -((1 - smoothing) * F.logsigmoid(h) + smoothing * F.logsigmoid(-h)).sum() / pairs
    metrics = {
        "dpo_loss": loss,
        "accuracy": (h > 0).to(h.dtype).sum() / pairs,
        "chosen_reward": won.sum() / pairs,
        "rejected_reward": lost.sum() / pairs,
        "reward_margin": h.sum() / pairs,
    }
    return LossOutput(loss=loss, metrics={name: tensor.detach() for name, tensor in metrics.items()})


def _lengths(kept: Tensor, lengths: Tensor | None) -> Tensor:
    """Sampled tokens of each token's sequence, at least 1."""
    each = kept.sum(dim=1, keepdim=True) if lengths is None else lengths.expand_as(kept).masked_fill(~kept, 1)
    return each.clamp(min=1)


def _same_shape(name: str, tensor: Tensor | None, like: Tensor) -> None:
    if tensor is not None and tensor.shape != like.shape:
        raise BadValue(
            f"{name} has shape {list(tensor.shape)} where {list(like.shape)} is needed; nothing is broadcast"
        )

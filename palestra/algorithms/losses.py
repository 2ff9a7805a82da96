"""Losses over micro-batches of token samples, as pure functions of tensors. Requires torch.

Shapes: B rows, T tokens per row, P preference pairs. A mask selects the tokens that the policy sampled; values at other
positions (padding, prompts, NaN) affect neither the loss nor the gradient.

A batch is too large for one backward pass, so it is split into micro-batches. Every loss divides by the counts of the
whole batch (`Denominators`) rather than those of the micro-batch, so the sum over micro-batches is the loss on the
batch for any split, padding or packing. Metrics are combined in the same way (see `combine`).
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

MAX_LOG_RATIO = 20.0  # bound on log-ratios in nats, to avoid overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """Token and sequence counts of the whole batch. The counts from micro-batches and ranks can be added."""

    tokens: float  # weighted number of sampled tokens
    sequences: float  # weighted number of sequences (episodes) with a sampled token
    length: float = 1.0  # Dr. GRPO's constant divisor: maximum number of sampled tokens per episode

    @classmethod
    def of(
        cls, mask: Tensor, *, lengths: Tensor | None = None, weights: Tensor | None = None, length: float = 1.0
    ) -> Self:
        """Count the tokens and sequences of one micro-batch; see LossInputs (`lengths`) and `sft_loss` (`weights`)."""
        valid = mask.bool()
        one = torch.ones_like(valid, dtype=torch.float32) if weights is None else weights
        share = one.masked_fill(~valid, 0.0).cpu().double()  # on a CPU, since some devices do not support float64
        each = _lengths(valid, lengths).cpu().double()
        return cls(tokens=share.sum().item(), sequences=(share / each).sum().item(), length=length)

    def __add__(self, other: Denominators) -> Denominators:
        if self.length != other.length:
            raise BadValue(
                f"parts of one batch must have the same length constant, got {self.length} and {other.length}"
            )
        return Denominators(
            tokens=self.tokens + other.tokens, sequences=self.sequences + other.sequences, length=self.length
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInputs:
    """One micro-batch. All tensors are [B, T], and entry t in a row refers to that row's token t.

    Three policies may differ: the sampling policy (`old_logprobs`), the policy being trained (`logprobs`) and the
    proximal policy, around which ratios are clipped. The proximal policy is the sampling policy unless
    `proximal_logprobs` is set: it then has the weights at the start of the step, and `weights` correct the difference
    from the sampling policy (see `importance.py`).
    """

    logprobs: Tensor  # with gradient
    old_logprobs: Tensor  # log-probs under the sampling policy
    advantages: Tensor
    mask: Tensor  # booleans, or 0 and 1
    proximal_logprobs: Tensor | None = None
    weights: Tensor | None = None  # importance weights without gradient; None means 1
    ref_logprobs: Tensor | None = None
    entropy: Tensor | None = None  # entropy of the distribution at each token, with gradient
    entropy_weights: Tensor | None = None  # factors of the entropy bonus; None means 1
    other_logprobs: Tensor | None = None  # log-probs of other tokens, with gradient; 0 where there is none
    lengths: Tensor | None = None  # number of loss tokens in each token's sequence (episode); None: a row is a sequence
    ratio_ids: Tensor | None = None  # tokens with the same number share one ratio (GSPO); None: one ratio per token

    def __post_init__(self) -> None:
        names = ("old_logprobs", "advantages", "mask", "proximal_logprobs", "weights", "ref_logprobs", "entropy")
        for name in (*names, "entropy_weights", "other_logprobs", "ratio_ids"):
            _same_shape(name, getattr(self, name), self.logprobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOutput:
    """Contribution of a micro-batch to its batch's loss and metrics."""

    loss: Tensor
    metrics: dict[str, Tensor]  # no gradient; combined by maximum (_max), minimum (_min) or sum (all others)


def combine(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """Combine micro-batch metrics into batch metrics."""
    metrics: dict[str, float] = {}
    for part in parts:
        for name, tensor in part.items():
            value = tensor.item()
            if name not in metrics:
                metrics[name] = value
            elif name.endswith(("_max", "_min")):
                metrics[name] = (max if name.endswith("_max") else min)(metrics[name], value)
            else:
                metrics[name] += value
    return metrics


def aggregate(
    numbers: Tensor,
    mask: Tensor,
    denominators: Denominators,
    *,
    how: Aggregate = "token",
    lengths: Tensor | None = None,
) -> Tensor:
    """Reduce the values of all tokens to a scalar.

    token:    sum over the batch / number of tokens              every token has the same weight
    sequence: mean over each sequence, then over sequences       every sequence has the same weight
    constant: sum over each sequence / length, then mean over sequences    Dr. GRPO: independent of the reply length
    """
    valid = mask.bool()
    by = {"token": denominators.tokens, "sequence": denominators.sequences}.get(
        how, denominators.sequences * denominators.length
    )
    if not by > 0:
        raise BadValue("the batch has no sampled token with a nonzero weight, so the loss is undefined; skip the batch")
    numbers = numbers.masked_fill(~valid, 0.0)
    if how == "sequence":
        numbers = numbers / _lengths(valid, lengths).to(numbers.dtype)
    return numbers.sum() / by


def policy_loss(inputs: LossInputs, denominators: Denominators, options: LossOptions | None = None) -> LossOutput:
    """L = agg(-w min(r A, clip(r, 1 - low, 1 + high) A)) + kl_coef agg(KL) - entropy_coef agg(v H)
        - other_coef agg(log q).

    r = p / p_old, or p / p_prox with proximal log-probs; w are the importance weights and v the entropy weights, both 1
    by default; q are the probabilities of other tokens. With `ratio_ids`, r is the geometric mean of the ratios of all
    tokens with the same number (GSPO). With the "cispo" objective, the policy term is -w clip(r, 1 - low, 1 + high) A
    log p, where the clipped ratio has no gradient. With `clip_dual` c, the policy term is at most -w c A where A is
    negative.
    """
    options = options or LossOptions()
    valid = inputs.mask.bool()
    logprobs = inputs.logprobs.masked_fill(~valid, 0.0)
    old = inputs.old_logprobs.masked_fill(~valid, 0.0)
    advantages = inputs.advantages.masked_fill(~valid, 0.0)

    def total(numbers: Tensor) -> Tensor:
        return aggregate(numbers, valid, denominators, how=options.aggregate, lengths=inputs.lengths)

    def share(numbers: Tensor) -> Tensor:
        return aggregate(numbers.detach(), valid, denominators)

    start = old if inputs.proximal_logprobs is None else inputs.proximal_logprobs.masked_fill(~valid, 0.0)
    if inputs.ratio_ids is None:
        r = ratio(logprobs, start)
    else:
        r = sequence_ratio(logprobs - start, valid, inputs.ratio_ids)
    if options.objective == "cispo":
        objective, clipped = weighted_logprobs(
            logprobs, r, advantages, clip_low=options.clip_low, clip_high=options.clip_high
        )
    else:
        objective, clipped = surrogate(
            r, advantages, clip_low=options.clip_low, clip_high=options.clip_high, clip_dual=options.clip_dual
        )
    if inputs.weights is not None:
        objective = objective * inputs.weights.detach().masked_fill(~valid, 0.0)
    policy = loss = total(-objective)
    moved = (logprobs - old).detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    since_start = (logprobs - start).detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    metrics = {
        "policy_loss": policy.detach(),
        "clip_fraction": share(clipped.to(r.dtype)),
        "approx_kl": share(torch.expm1(moved) - moved),  # KL from the sampling policy
        "step_kl": share(torch.expm1(since_start) - since_start),  # KL from the policy at the start of the step
        "nll": share(-logprobs),
        "ratio_mean": share(r),
        "ratio_max": r.detach().masked_fill(~valid, -torch.inf).max(),
        "ratio_min": r.detach().masked_fill(~valid, torch.inf).min(),
    }

    if inputs.ref_logprobs is not None:
        ref = inputs.ref_logprobs.masked_fill(~valid, 0.0)
        kl = kl_estimate(logprobs, ref, options.kl_estimator, straight_through=options.kl_straight_through)
        metrics["kl"] = share(kl)
        if options.kl_coef:
            loss = loss + options.kl_coef * total(kl)
    elif options.kl_coef:
        raise BadValue(
            "kl_coef needs ref_logprobs, the log-probs of the sampled tokens under the reference model; pass them or "
            "set kl_coef to 0"
        )
    if inputs.entropy is not None:
        metrics["entropy"] = share(inputs.entropy)
        if options.entropy_coef:
            bonus = inputs.entropy
            if inputs.entropy_weights is not None:
                bonus = bonus * inputs.entropy_weights.detach().masked_fill(~valid, 0.0)
            loss = loss - options.entropy_coef * total(bonus)
    elif options.entropy_coef:
        raise BadValue("entropy_coef needs the entropy at each token; pass it or set entropy_coef to 0")
    if options.other_coef:
        if inputs.other_logprobs is None:
            raise BadValue("other_coef needs the log-probs of other tokens; pass them or set other_coef to 0")
        loss = loss - options.other_coef * total(inputs.other_logprobs)
    return LossOutput(loss=loss, metrics=metrics | {"loss": loss.detach()})


def ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """Return p / p_old, clamped to avoid overflow."""
    return (logprobs - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def sequence_ratio(log_ratios: Tensor, mask: Tensor, ids: Tensor) -> Tensor:
    """Return exp(mean of the log-ratios of all tokens in the mask with the same id), at each token [B, T]."""
    valid = mask.bool()
    _, index = torch.unique(ids.masked_fill(~valid, -1), return_inverse=True)
    count = int(index.max()) + 1
    flat, index = log_ratios.masked_fill(~valid, 0.0).flatten(), index.flatten()
    sums = flat.new_zeros(count).index_add(0, index, flat)
    sizes = flat.new_zeros(count).index_add(0, index, valid.flatten().to(flat.dtype))
    means = (sums / sizes.clamp(min=1)).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return means.exp()[index].view_as(log_ratios)


def weighted_logprobs(
    logprobs: Tensor, r: Tensor, advantages: Tensor, *, clip_low: float | None, clip_high: float | None
) -> tuple[Tensor, Tensor]:
    """Return clip(r, 1 - low, 1 + high) A log p per token, without gradient of the ratio, and a mask of clipped ratios.

    Unlike in `surrogate`, a token whose ratio is clipped still has a gradient.
    """
    r = r.detach()
    low = None if clip_low is None else 1 - clip_low
    high = None if clip_high is None else 1 + clip_high
    bounded = r if low is None and high is None else r.clamp(min=low, max=high)
    return bounded * advantages * logprobs, bounded != r


def surrogate(
    r: Tensor,
    advantages: Tensor,
    *,
    clip_low: float | None,
    clip_high: float | None,
    clip_dual: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return min(r A, clip(r, 1 - low, 1 + high) A) per token, and a mask of the clipped tokens (zero gradient).

    With `clip_dual` c, the result is at least c A where A is negative, so that a token whose probability rose a lot
    does not dominate the gradient.
    """
    objective = r * advantages
    outside = torch.zeros_like(r, dtype=torch.bool)
    if clip_low is not None or clip_high is not None:
        low = None if clip_low is None else 1 - clip_low
        high = None if clip_high is None else 1 + clip_high
        clipped = r.clamp(min=low, max=high) * advantages
        outside = (clipped < objective).detach()
        objective = torch.minimum(objective, clipped)
    if clip_dual is not None:
        too_low = ((advantages < 0) & (objective < clip_dual * advantages)).detach()
        objective = torch.where(too_low, clip_dual * advantages, objective)
        outside = outside | too_low
    return objective, outside


def kl_estimate(
    logprobs: Tensor, ref_logprobs: Tensor, estimator: KLEstimator, *, straight_through: bool = False
) -> Tensor:
    """Estimate KL(p || ref) at each token from the sampled token, with d = log p - log ref.

    k1 = d                     unbiased, high variance, may be negative; the expected gradient is zero
    k2 = d^2 / 2               biased to third order, never negative; the expected gradient is that of the KL
    k3 = exp(-d) - 1 + d       unbiased, never negative; the expected gradient is that of KL(ref || p)

    `straight_through` combines the estimator's value with the gradient of k2. Expectations are over samples from p.
    """
    d = logprobs - ref_logprobs
    k2 = d.square() / 2
    if estimator == "k2":
        return k2
    if estimator == "k1":
        value = d
    else:
        clamped = d.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        value = torch.expm1(-clamped) + clamped
    return value.detach() + k2 - k2.detach() if straight_through else value


def kl_reward(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor, estimator: KLEstimator = "k1") -> Tensor:
    """Return the KL at each sampled token [B, T] and 0 elsewhere; `to_turns` sums it for `Episode.kl`."""
    valid = mask.bool()
    with torch.no_grad():
        return kl_estimate(logprobs.masked_fill(~valid, 0.0), ref_logprobs.masked_fill(~valid, 0.0), estimator)


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

    The mask selects the positions that have a value (the end of each observation, or every sampled token);
    `denominator` is the number of these positions in the whole batch.
    """
    valid = mask.bool()
    for name, tensor in (("returns", returns), ("mask", mask), ("old_values", old_values)):
        _same_shape(name, tensor, values)
    values, returns = values.masked_fill(~valid, 0.0), returns.masked_fill(~valid, 0.0)
    error = (values - returns).square()
    clipped_error = error
    if clip is not None:
        if old_values is None:
            raise BadValue(
                "value clipping needs old_values, the values before the update; pass them or set clip to None"
            )
        old = old_values.masked_fill(~valid, 0.0)
        clipped_error = (old + (values - old).clamp(-clip, clip) - returns).square()
    loss = torch.maximum(error, clipped_error).masked_fill(~valid, 0.0).sum() / 2 / denominator
    fraction = (clipped_error > error).to(values.dtype).sum() / denominator
    return LossOutput(loss=loss, metrics={"value_loss": loss.detach(), "value_clip_fraction": fraction.detach()})


def sft_loss(
    logprobs: Tensor,
    weights: Tensor,
    mask: Tensor,
    denominators: Denominators,
    *,
    how: Aggregate = "token",
    lengths: Tensor | None = None,
) -> LossOutput:
    """L = agg(-w log p), all [B, T]. It is a weighted mean if the denominators were computed with the same weights."""
    valid = mask.bool()
    _same_shape("weights", weights, logprobs)
    _same_shape("mask", mask, logprobs)
    nll = -logprobs.masked_fill(~valid, 0.0) * weights.masked_fill(~valid, 0.0)
    loss = aggregate(nll, valid, denominators, how=how, lengths=lengths)
    return LossOutput(loss=loss, metrics={"sft_loss": loss.detach()})


def sequence_logprobs(logprobs: Tensor, mask: Tensor, owner: Tensor, count: int) -> Tensor:
    """Return log p for each of `count` trajectories, summed over its sampled tokens in all rows.

    `owner` [B] or [B, T] is the index of the trajectory that a row or token belongs to.
    """
    valid = mask.bool()
    _same_shape("mask", mask, logprobs)
    owner = (owner[:, None] if owner.dim() == 1 else owner).expand_as(logprobs).masked_fill(~valid, 0)
    return logprobs.new_zeros(count).index_add(0, owner.flatten(), logprobs.masked_fill(~valid, 0.0).flatten())


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

    Inputs are log-probabilities of whole trajectories, [P]; `pairs` is the number of pairs in the batch. `smoothing`
    s is the assumed fraction of mislabeled pairs.
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


def _lengths(valid: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the number of sampled tokens in each token's sequence, at least 1."""
    each = valid.sum(dim=1, keepdim=True) if lengths is None else lengths.expand_as(valid).masked_fill(~valid, 1)
    return each.clamp(min=1)


def _same_shape(name: str, tensor: Tensor | None, like: Tensor) -> None:
    if tensor is not None and tensor.shape != like.shape:
        raise BadValue(f"{name} must have shape {list(like.shape)} (no broadcasting), got {list(tensor.shape)}")

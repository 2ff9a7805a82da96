"""One update without rewards: clone weighted trajectories, or prefer one of each pair; metrics out.

Both come down to the gradient of sum w log p over sampled tokens, so any split into micro-batches gives the same one.
Where there are several processes each is given all examples, and reads its share.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from palestra.algorithms.dpo import Pair
from palestra.algorithms.losses import Denominators, dpo_loss, sequence_logprobs, sft_loss
from palestra.errors import BadValue
from palestra.rollout.types import Trajectory
from palestra.training.batch import Micro, everything, rows_of
from palestra.training.learner import Learner
from palestra.training.policy import Policy


def as_written(learner: Learner) -> None:
    """Score what others wrote at temperature 1, at whatever the model is sampled."""
    for policy in (learner.policy, learner.reference):
        if policy is not None:
            policy.temperature = 1.0


def clone(
    learner: Learner,
    trajectories: Sequence[Trajectory],
    weights: Sequence[Sequence[float]],  # of each turn
    lr: float,
    *,
    observations: bool = False,
) -> dict[str, float]:
    """Move log p of what the player wrote by its weight; with `observations`, of what it was told by 1 as well."""
    rows = rows_of(trajectories)
    if observations:
        rows = everything(rows)
    micros = learner.micros(learner.world.share(rows))
    laid = [_laid(micro, weights, 1.0 if observations else 0.0) for micro in micros]
    parts = [Denominators.of(micro.mask, weights=each) for micro, each in zip(micros, laid, strict=True)]
    tokens, sequences = learner.world.total([sum(d.tokens for d in parts), sum(d.sequences for d in parts)])
    if not tokens > 0:
        return {"signal": 0.0}  # nothing in it counts
    denominators = Denominators(tokens=tokens, sequences=sequences)
    learner.optimiser.rates(lr, 0.0)
    learner.optimiser.zero_grad()
    total = 0.0
    for micro, each in zip(micros, laid, strict=True):
        loss = sft_loss(learner.policy.score(micro).logprobs, each, micro.mask, denominators).loss
        learner.backward(loss)
        total += loss.item()
    return {"loss": learner.world.total([total])[0], "grad_norm": learner.apply()}


def prefer(
    learner: Learner, pairs: Sequence[Pair], lr: float, *, beta: float, smoothing: float = 0.0
) -> dict[str, float]:
    """Move the chosen trajectories up and the rejected ones down, measured against the learner's reference.

    First the log-probabilities of whole trajectories, without gradient; what the loss says about those are the weights
    with which their tokens are then moved. That way the two of a pair need not fit in one micro-batch.
    """
    if learner.reference is None:
        raise BadValue("preferences are measured against a reference: give the learner one")
    trajectories = [t for pair in pairs for t in (pair.chosen, pair.rejected)]
    micros = learner.micros(learner.world.share(rows_of(trajectories)))
    now = _logprobs(learner, learner.policy, micros, trajectories).requires_grad_()
    then = _logprobs(learner, learner.reference, micros, trajectories)
    output = dpo_loss(now[0::2], now[1::2], then[0::2], then[1::2], pairs=len(pairs), beta=beta, smoothing=smoothing)
    (slopes,) = torch.autograd.grad(output.loss, now)
    weights = [[slope] * len(t.turns) for slope, t in zip(slopes.tolist(), trajectories, strict=True)]
    learner.optimiser.rates(lr, 0.0)
    learner.optimiser.zero_grad()
    for micro in micros:
        moved = learner.policy.score(micro).logprobs * micro.from_turns(weights)
        learner.backward(moved.masked_fill(~micro.mask, 0.0).sum())
    metrics = {name: value.item() for name, value in output.metrics.items()}
    metrics["loss"] = metrics.pop("dpo_loss")
    return metrics | {"grad_norm": learner.apply()}


@torch.no_grad()
def _logprobs(learner: Learner, policy: Policy, micros: Sequence[Micro], trajectories: Sequence[Trajectory]) -> Tensor:
    """log p of each trajectory: the sum over its sampled tokens, whichever micro-batch of which process has them."""
    total = torch.zeros(len(trajectories), dtype=torch.float64)
    whose = [[float(i)] * len(t.turns) for i, t in enumerate(trajectories)]
    for micro in micros:
        owner = micro.from_turns(whose).long()
        total += sequence_logprobs(policy.score(micro).logprobs, micro.mask, owner, len(trajectories)).cpu()
    return torch.tensor(learner.world.total(total.tolist()), dtype=torch.float64)


def _laid(micro: Micro, weights: Sequence[Sequence[float]], read: float) -> Tensor:
    """[B, T]: each turn's weight on the tokens it sampled, `read` on all others; only those of the mask count."""
    return micro.fill([[weights[row.episode][t] if t >= 0 else read for t in row.turn_index] for row in micro.rows])

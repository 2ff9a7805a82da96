"""Limit the change of the policy in a training step by its KL from the policy at the start of the step."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from palestra.rollout.samples import TrainingSample
from palestra.training.learner import Learner

KL_SAMPLES = 128  # number of samples per process for estimating the KL of a step
KEPT = (0.5, 0.25, 0.0625, 0.0)  # fractions of a step to try, one after the other, if its KL is too large


class TrustRegion:
    """Makes the updates of a step and checks their KL before the new weights sample episodes.

    The next minibatch's forward pass measures the KL of the updates so far without additional cost: no further update
    is made once it exceeds `target` or `limit`. After the last update, `finish` measures the KL on samples of the whole
    batch; if it exceeds `limit`, the step is scaled back or undone, and the momentum that caused it is reset. A target
    or limit of 0 disables its check. Before the first update, the KL is `offset`, which is not 0 if the engine computes
    slightly different log-probs; it is added to both bounds.
    """

    def __init__(self, learner: Learner, *, target: float, limit: float) -> None:
        self._learner = learner
        self.target = target
        self.limit = limit
        self.offset = 0.0
        self.backtracked = False
        self._start = learner.optimizer.copy_parameters() if limit else []

    def reached(self, kl: float) -> bool:
        """Return whether the KL of the updates so far is so large that no further update should be made."""
        return any(b > 0 and not kl <= b + self.offset for b in (self.target, self.limit))  # NaN counts as too large

    def finish(self, samples: Sequence[TrainingSample], columns: frozenset[str]) -> float:
        """Return the KL of the step, after scaling the step back if its KL exceeds the limit."""
        optimizer = self._learner.optimizer
        kl = step_kl(self._learner, samples, columns)
        previous = 1.0
        for kept in KEPT if self.limit else ():
            if kl <= self.limit + self.offset:
                break
            optimizer.undo(self._start, 1 - kept / previous)
            self._learner.reshard()
            previous, self.backtracked = kept, True
            kl = step_kl(self._learner, samples, columns)
        if self.backtracked:
            optimizer.reset_momentum()
        return kl


@torch.no_grad()
def step_kl(learner: Learner, samples: Sequence[TrainingSample], columns: frozenset[str]) -> float:
    """Estimate the KL from the policy at the start of the step to the current policy, using some of the samples."""
    total, count = 0.0, 0.0
    for batch in learner.micro_batches(samples[:: max(1, len(samples) // KL_SAMPLES)], columns):
        start = batch.column("proximal_logprobs")
        start = batch.column("old_logprobs") if start is None else start
        if start is None:
            raise ValueError("the samples have no column 'old_logprobs'; call precompute first")
        log_ratio = (learner.policy.score(batch).logprobs - start).double().masked_fill(~batch.mask, 0.0)
        total += float((torch.expm1(log_ratio) - log_ratio).sum())
        count += float(batch.mask.sum())
    total, count = learner.distributed.sum([total, count])
    return total / max(1.0, count)

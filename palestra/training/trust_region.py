"""Limit the change of the policy in a training step.

It is measured by the KL from the policy at the start of the step, and by the probability that moved to tokens that were
not sampled. The KL is estimated from the sampled tokens, whose probabilities hardly fall if a part of the replies is
broken: with a wrong first token in every fourth reply of four tokens, it is 0.009 per token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from palestra.rollout.samples import TrainingSample
from palestra.training.learner import Learner

SAMPLES, TOKENS = 128, 1024  # minimum numbers of samples and sampled tokens per process that measure a step's change
MAX_UNSAMPLED = 0.02  # largest mean probability per token that a step may move to tokens that were not sampled
MIN_UNSAMPLED = 0.002  # the same for a policy that is almost deterministic
UNSAMPLED_PER_ENTROPY = 0.5  # the same between the two, in proportion to the entropy per token
KEPT = (0.5, 0.25, 0.0625, 0.0)  # fractions of a step to try, one after the other, if its KL is too large


class Change(NamedTuple):
    """Difference between the policies before and after a step."""

    kl: float  # per token
    unsampled: float  # mean probability per token that moved to tokens that were not sampled; negative: from them


class TrustRegion:
    """Makes the updates of a step and checks their KL before the new weights sample episodes.

    The next minibatch's forward pass measures the KL of the updates so far without additional cost: no further update
    is made once it exceeds `target` or `limit`. After the last update, `finish` measures the change on samples of the
    whole batch; if the KL exceeds `limit` or, in `on_policy` samples, too much probability moved to tokens that were
    not sampled for a policy with this `entropy` per token, the step is scaled back or undone, and the momentum that
    caused it is reset. A target or limit of 0 disables its checks. Before the first update, the KL is `offset`, which
    is not 0 if the engine computes slightly different log-probs; it is added to both bounds.
    """

    def __init__(
        self, learner: Learner, *, target: float, limit: float, entropy: float, on_policy: bool = True
    ) -> None:
        self._learner = learner
        self.target = target
        self.limit = limit
        self.max_unsampled = max_unsampled(entropy) if on_policy else math.inf
        self.offset = 0.0
        self.backtracked = False
        self._start = learner.optimizer.copy_parameters() if limit else []

    def reached(self, kl: float) -> bool:
        """Return whether the KL of the updates so far is so large that no further update should be made."""
        return any(b > 0 and not kl <= b + self.offset for b in (self.target, self.limit))  # NaN counts as too large

    def finish(self, samples: Sequence[TrainingSample], columns: frozenset[str]) -> Change:
        """Return the change of the policy in the step, after scaling the step back if it is too large."""
        optimizer = self._learner.optimizer
        change = step_change(self._learner, samples, columns)
        previous = 1.0
        for kept in KEPT if self.limit else ():
            if not self._is_too_large(change):
                break
            optimizer.undo(self._start, 1 - kept / previous)
            self._learner.reshard()
            previous, self.backtracked = kept, True
            change = step_change(self._learner, samples, columns)
        if self.backtracked:
            optimizer.reset_momentum()
        return change

    def _is_too_large(self, change: Change) -> bool:
        near = change.kl <= self.limit + self.offset  # False for NaN
        return not near or change.unsampled > self.max_unsampled


def max_unsampled(entropy: float) -> float:
    """Return how much probability per token a step may move to tokens that were not sampled.

    It depends on the policy's entropy per token, which is estimated from the log-probs of the sampled tokens. A policy
    that is almost deterministic rarely has another token that is as good: in Hanoi, a step that moved 0.007 at an
    entropy of 0.0016 ruined one episode in four.
    """
    return min(MAX_UNSAMPLED, max(MIN_UNSAMPLED, UNSAMPLED_PER_ENTROPY * entropy))


@torch.no_grad()
def step_change(learner: Learner, samples: Sequence[TrainingSample], columns: frozenset[str]) -> Change:
    """Estimate the change of the policy since the start of the step, using some of the samples.

    The mean of the ratio of new to old probabilities over tokens sampled from the old policy is 1, except for the
    probability of tokens that are so rare that none was sampled.
    """
    total, ratios, count = 0.0, 0.0, 0.0
    sampled = sum(sample.sampled for sample in samples)
    part = max(SAMPLES / max(1, len(samples)), TOKENS / max(1, sampled))  # of the samples
    for batch in learner.micro_batches(samples[:: max(1, int(1 / part))], columns):
        start = batch.column("proximal_logprobs")
        start = batch.column("old_logprobs") if start is None else start
        if start is None:
            raise ValueError("the samples have no column 'old_logprobs'; call precompute first")
        log_ratio = (learner.policy.score(batch).logprobs - start).double().masked_fill(~batch.mask, 0.0)
        moved = torch.expm1(log_ratio)
        total += float((moved - log_ratio).sum())
        ratios += float(moved.sum())
        count += float(batch.mask.sum())
    total, ratios, count = learner.distributed.sum([total, ratios, count])
    return Change(kl=total / max(1.0, count), unsampled=-ratios / max(1.0, count))

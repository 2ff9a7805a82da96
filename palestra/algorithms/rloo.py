"""RLOO: an episode against the mean of the others of its task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from palestra.algorithms.base import Algorithm, Credit, Episode
from palestra.algorithms.grpo import Lone, check_choice, group_sizes, lone_share
from palestra.algorithms.normalise import relative
from palestra.algorithms.returns import turn_returns


@dataclass(frozen=True, slots=True, kw_only=True)
class RLOO(Algorithm):
    """A_t = R_i - 1/(n-1) sum_{j != i} R_j at every turn; R = sum_k gamma^k (r_k - beta KL_k).

    The baseline does not contain the episode's own return, which keeps the gradient unbiased. It is the same as
    n/(n-1) (R_i - mean(R)), which is how it is computed.
    """

    name: ClassVar[str] = "rloo"
    needs_groups: ClassVar[bool] = True

    lone: Lone = "refuse"

    def __post_init__(self) -> None:
        Algorithm.__post_init__(self)
        check_choice("lone", self.lone, ("refuse", "zero"))

    def credit(self, episodes: Sequence[Episode]) -> Credit:
        sizes = group_sizes("RLOO", episodes, self.lone)
        totals = [returns[:1] for returns in turn_returns(episodes, gamma=self.gamma, beta=self.beta)]
        centred, metrics = relative(totals, [e.task for e in episodes], scale=False)
        advantages = []
        for (own,), episode in zip(centred, episodes, strict=True):
            n = sizes[episode.task]
            advantages.append([own * n / max(n - 1, 1)] * len(episode.rewards))
        return Credit(advantages=advantages, metrics=metrics | lone_share(sizes))

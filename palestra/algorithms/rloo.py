"""RLOO: compare each episode with the mean of the other episodes on its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from palestra.algorithms.base import AlgorithmConfig, PolicyGradient
from palestra.algorithms.episode import Advantages, Episode, turn_returns
from palestra.algorithms.grpo import GroupConfig, group_sizes, singleton_fraction
from palestra.algorithms.normalize import normalize


class RLOOConfig(GroupConfig):
    """Options for RLOO."""


class RLOO(PolicyGradient[RLOOConfig]):
    """A_t = R_i - 1/(n-1) sum_{j != i} R_j for every turn; R = sum_k gamma^k (r_k - kl KL_k).

    The baseline excludes the episode's own return, so the gradient is unbiased. The advantage is computed as
    n/(n-1) (R_i - mean(R)), which is equivalent.
    """

    name: ClassVar[str] = "rloo"
    config_class: ClassVar[type[AlgorithmConfig]] = RLOOConfig
    needs_groups: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {"group_size": 8}

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        config = self.config
        sizes = group_sizes("RLOO", episodes, config.singleton)
        returns = turn_returns(episodes, gamma=config.gamma, kl_coef=config.kl_in_reward)
        totals = [row[:1] for row in returns]
        centered, metrics = normalize(totals, [e.task for e in episodes], scale=False)
        advantages = []
        for (own,), episode in zip(centered, episodes, strict=True):
            n = sizes[episode.task]
            advantages.append([own * n / max(n - 1, 1)] * len(episode.rewards))
        return Advantages(advantages=advantages, metrics=metrics | singleton_fraction(sizes))

"""RLOO: compare each episode with the mean of the other episodes on its task."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from palestra.algorithms.base import AlgorithmConfig, PolicyGradient
from palestra.algorithms.episode import Advantages, Episode, turn_returns
from palestra.algorithms.groups import GroupConfig, excluded_groups, group_sizes, singleton_fraction
from palestra.algorithms.normalize import normalize, weights_of


class RLOOConfig(GroupConfig):
    """Options for RLOO."""


class RLOO(PolicyGradient[RLOOConfig]):
    """A_t = R_i - 1/(n-1) sum_{j != i} R_j for every turn; R = sum_k gamma^k (r_k - kl KL_k).

    The baseline excludes the episode's own return, so the gradient is unbiased. The advantage is computed as
    n/(n-1) (R_i - mean(R)), which is equivalent. Stale samples have importance weights w_i in the mean, and n/(n-1)
    becomes sum(w) / (sum(w) - w_i).
    """

    name: ClassVar[str] = "rloo"
    config_class: ClassVar[type[AlgorithmConfig]] = RLOOConfig
    needs_groups: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {"group_size": 8}

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        config = self.config
        sizes = group_sizes("RLOO", episodes, config.singleton)
        returns = turn_returns(episodes, gamma=config.discount_of(episodes), kl_coef=config.kl_in_reward)
        totals = [row[0] for row in returns]
        rows, keys = [[total] for total in totals], [episode.task for episode in episodes]
        centered, metrics = normalize(rows, keys, scale=False, weights=weights_of(episodes))
        mass: dict[Hashable, float] = {}
        for episode in episodes:
            mass[episode.task] = mass.get(episode.task, 0.0) + episode.weight
        advantages = []
        for (own,), episode in zip(centered, episodes, strict=True):
            others = mass[episode.task] - episode.weight
            scale = mass[episode.task] / others if sizes[episode.task] > 1 and others > 0 else 1.0
            advantages.append([own * scale] * len(episode.rewards))
        excluded = excluded_groups(config, episodes, totals)
        return Advantages(advantages=advantages, excluded=excluded, metrics=metrics | singleton_fraction(sizes))

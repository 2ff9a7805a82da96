"""GiGPO: compare whole episodes of a task, and turns with the same observation across them (arXiv 2505.10978)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from palestra.algorithms.base import AlgorithmConfig
from palestra.algorithms.episode import Advantages, Episode, turn_returns
from palestra.algorithms.groups import group_advantages
from palestra.algorithms.grpo import GroupRelative, GRPOConfig
from palestra.algorithms.normalize import has_variance, normalize
from palestra.algorithms.options import changed_default, option
from palestra.errors import BadValue


@dataclass(frozen=True, kw_only=True)
class GiGPOConfig(GRPOConfig):
    """Options for GiGPO."""

    gamma: float = changed_default(GRPOConfig, "gamma", 0.95)
    step_weight: float = option(
        1.0,
        "Weight of the advantages computed among turns with the same observation; 0 uses only GRPO's advantages.",
        at_least=0,
    )


class GiGPO(GroupRelative[GiGPOConfig]):
    """A_t = (R - mean_group(R)) / std_group(R) + step_weight (G_t - mean_s(G)) / std_s(G).

    R = sum_k (r_k - kl KL_k) is the undiscounted return of the episode; G_t = sum_{k>=t} gamma^{k-t} (r_k - kl KL_k).
    The mean and standard deviation with index s are computed over all turns of the task's episodes that follow the same
    observation (the anchor state). With `normalize="none"`, both parts are only centered.
    """

    name: ClassVar[str] = "gigpo"
    config_class: ClassVar[type[AlgorithmConfig]] = GiGPOConfig

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        config = self.config
        scale = config.normalize == "std"
        totals = [sum(episode.penalized_rewards(config.kl_in_reward)) for episode in episodes]
        result = group_advantages("GiGPO", config, episodes, totals, scale=scale)
        keys: list[Hashable] = []
        for episode in episodes:
            if episode.observations is None:
                raise BadValue(f"{episode.label}: GiGPO needs `observations`, one fingerprint per turn")
            keys += [(episode.task, observation) for observation in episode.observations]
        returns = turn_returns(episodes, gamma=config.discount_of(episodes), kl_coef=config.kl_in_reward)
        rows = [[value] for row in returns for value in row]
        weights = [episode.weight for episode in episodes for _ in episode.rewards]
        steps, _ = normalize(rows, keys, scale=scale, weights=weights)
        varies = has_variance(rows, keys, weights)
        advantages, informative, start = [], [], 0
        for row in result.advantages:
            own = slice(start, start + len(row))
            advantages.append([a + config.step_weight * b for a, (b,) in zip(row, steps[own], strict=True)])
            informative.append(any(varies[own]))
            start += len(row)
        excluded = result.excluded
        if excluded is not None and config.step_weight:
            excluded = [out and not useful for out, useful in zip(excluded, informative, strict=True)]
        sizes = Counter(keys)
        shared = sum(sizes[key] > 1 for key in keys) / len(keys) if keys else 0.0
        return replace(
            result, advantages=advantages, excluded=excluded, metrics={**result.metrics, "shared_observations": shared}
        )

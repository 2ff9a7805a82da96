"""REINFORCE++-baseline: subtract the group's mean return, then normalize over the batch (arXiv 2501.03262)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from palestra.algorithms.base import AlgorithmConfig, PolicyGradient
from palestra.algorithms.episode import Advantages, Episode, turn_returns
from palestra.algorithms.groups import GroupConfig, group_advantages
from palestra.algorithms.normalize import env_keys, normalize, weights_of
from palestra.algorithms.options import option


@dataclass(frozen=True, kw_only=True)
class ReinforcePPBaselineConfig(GroupConfig):
    """Options for REINFORCE++-baseline."""

    normalize_per_env: bool = option(
        True, "Compute the mean and standard deviation for each environment separately instead of over the whole batch."
    )


class ReinforcePPBaseline(PolicyGradient[ReinforcePPBaselineConfig]):
    """A_t = (B - mean(B)) / std(B) for every turn; B = R - mean_group(R), R = sum_k gamma^k (r_k - kl KL_k).

    The mean and standard deviation of B are computed over all turns in the same environment, or in the whole batch if
    `normalize_per_env` is False. The paper uses `kl_in="loss"` with `kl_estimator="k2"`.
    """

    name: ClassVar[str] = "reinforce_pp_baseline"
    config_class: ClassVar[type[AlgorithmConfig]] = ReinforcePPBaselineConfig
    needs_groups: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {"group_size": 8}

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        config = self.config
        returns = turn_returns(episodes, gamma=config.discount_of(episodes), kl_coef=config.kl_in_reward)
        result = group_advantages("REINFORCE++-baseline", config, episodes, [row[0] for row in returns], scale=False)
        keys = env_keys(episodes, config.normalize_per_env)
        kept = result.kept
        normalized, _ = normalize(
            [result.advantages[i] for i in kept],
            [keys[i] for i in kept],
            scale=True,
            weights=[weights_of(episodes)[i] for i in kept],
        )
        advantages = [[0.0] * len(row) for row in result.advantages]
        for i, row in zip(kept, normalized, strict=True):
            advantages[i] = row
        return replace(result, advantages=advantages)

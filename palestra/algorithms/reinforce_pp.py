"""REINFORCE++: normalize returns over the batch, usually with a KL penalty in the reward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from palestra.algorithms.base import AlgorithmConfig, PolicyGradient, PolicyGradientConfig
from palestra.algorithms.episode import Advantages, Episode, turn_returns
from palestra.algorithms.normalize import env_keys, normalize, weights_of
from palestra.algorithms.options import option


@dataclass(frozen=True, kw_only=True)
class ReinforcePPConfig(PolicyGradientConfig):
    """Options for REINFORCE++."""

    normalize_per_env: bool = option(
        True, "Compute the mean and standard deviation for each environment separately instead of over the whole batch."
    )


class ReinforcePP(PolicyGradient[ReinforcePPConfig]):
    """A_t = (G_t - mean(G)) / std(G); G_t = sum_{k>=t} gamma^{k-t} (r_k - kl KL_k).

    The published algorithm normalizes over the whole batch (`normalize_per_env=False`) and uses `kl_in="reward"`.
    """

    name: ClassVar[str] = "reinforce_pp"
    config_class: ClassVar[type[AlgorithmConfig]] = ReinforcePPConfig

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        config = self.config
        returns = turn_returns(episodes, gamma=config.discount_of(episodes), kl_coef=config.kl_in_reward)
        advantages, metrics = normalize(
            returns, env_keys(episodes, config.normalize_per_env), scale=True, weights=weights_of(episodes)
        )
        return Advantages(advantages=advantages, metrics=metrics)

"""REINFORCE: use each turn's return-to-go as its advantage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from palestra.algorithms.base import AlgorithmConfig, PolicyGradient, PolicyGradientConfig
from palestra.algorithms.episode import Advantages, Episode, turn_returns
from palestra.algorithms.normalize import env_keys, normalize, weights_of
from palestra.algorithms.options import option


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(PolicyGradientConfig):
    """Options for REINFORCE."""

    baseline: bool = option(
        False, "Subtract the mean return from every return, which reduces the variance of the gradient."
    )
    normalize_per_env: bool = option(
        True, "Compute the mean and standard deviation for each environment separately instead of over the whole batch."
    )


class Reinforce(PolicyGradient[ReinforceConfig]):
    """A_t = G_t, or G_t - mean(G) with `baseline`; G_t = sum_{k>=t} gamma^{k-t} (r_k - kl KL_k).

    The mean is computed over all turns in the same environment, or in the whole batch if `normalize_per_env` is False.
    """

    name: ClassVar[str] = "reinforce"
    config_class: ClassVar[type[AlgorithmConfig]] = ReinforceConfig

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        config = self.config
        returns = turn_returns(episodes, gamma=config.discount_of(episodes), kl_coef=config.kl_in_reward)
        if not config.baseline:
            return Advantages(advantages=returns)
        advantages, metrics = normalize(
            returns, env_keys(episodes, config.normalize_per_env), scale=False, weights=weights_of(episodes)
        )
        return Advantages(advantages=advantages, metrics=metrics)

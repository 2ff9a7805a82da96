"""ReBN: REINFORCE with Return Batch Normalization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from palestra.algorithms.base import AlgorithmConfig, PolicyGradient, PolicyGradientConfig
from palestra.algorithms.episode import Advantages, Episode, turn_returns
from palestra.algorithms.normalize import env_keys, normalize, weights_of
from palestra.algorithms.options import option


@dataclass(frozen=True, kw_only=True)
class ReBNConfig(PolicyGradientConfig):
    """Options for ReBN."""

    normalize_per_env: bool = option(
        True, "Compute the mean and standard deviation for each environment separately instead of over the whole batch."
    )
    normalize_per_turn: bool = option(
        False,
        "Compute the mean and standard deviation for each turn number separately; useful if returns "
        "shrink from turn to turn.",
        untrained=True,
    )


class ReBN(PolicyGradient[ReBNConfig]):
    """A_t = (G_t - mean(G)) / std(G); G_t = sum_{k>=t} gamma^{k-t} (r_k - kl KL_k).

    The mean and standard deviation are computed over all turns in the batch rather than over episodes.
    `normalize_per_env` computes them separately for each environment, so that an environment with large rewards does
    not dominate the others. `normalize_per_turn` computes them separately for each turn number (all first turns, all
    second turns, ...), which removes the part of the return that depends only on the turn number.
    """

    name: ClassVar[str] = "rebn"
    config_class: ClassVar[type[AlgorithmConfig]] = ReBNConfig

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        config = self.config
        returns = turn_returns(episodes, gamma=config.discount_of(episodes), kl_coef=config.kl_in_reward)
        keys = env_keys(episodes, config.normalize_per_env)
        if not config.normalize_per_turn:
            advantages, metrics = normalize(returns, keys, scale=True, weights=weights_of(episodes))
            return Advantages(advantages=advantages, metrics=metrics)
        single = [[value] for row in returns for value in row]
        turn_keys = [(key, turn) for key, row in zip(keys, returns, strict=True) for turn in range(len(row))]
        weights = [episode.weight for episode, row in zip(episodes, returns, strict=True) for _ in row]
        normalized, metrics = normalize(single, turn_keys, scale=True, weights=weights)
        numbers = iter(normalized)
        return Advantages(advantages=[[next(numbers)[0] for _ in row] for row in returns], metrics=metrics)

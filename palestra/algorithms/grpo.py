"""GRPO: compare each episode with the other episodes on its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from palestra.algorithms.base import AlgorithmConfig, PolicyGradient
from palestra.algorithms.episode import Advantages, Episode, turn_returns
from palestra.algorithms.groups import GroupConfig, group_advantages
from palestra.algorithms.options import option


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(GroupConfig):
    """Options for GRPO."""

    normalize: Literal["std", "none"] = option(
        "std",
        "Scaling of the advantages: 'std' divides them by the group's standard deviation, 'none' leaves "
        "them unscaled as in Dr. GRPO.",
        choices=("std", "none"),
    )


R = TypeVar("R", bound=GRPOConfig)


class GroupRelative(PolicyGradient[R]):
    """A_t = (R - mean_group(R)) / std_group(R) for every turn; R = sum_k gamma^k (r_k - kl KL_k).

    `normalize="none"` omits the division. `std` is the sample standard deviation (n - 1).
    """

    needs_groups: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {"group_size": 8}

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        config = self.config
        returns = turn_returns(episodes, gamma=config.discount_of(episodes), kl_coef=config.kl_in_reward)
        totals = [row[0] for row in returns]
        return group_advantages(type(self).__name__, config, episodes, totals, scale=config.normalize == "std")


class GRPO(GroupRelative[GRPOConfig]):
    """A_t = (R - mean_group(R)) / std_group(R) for every turn, with PPO's clipped loss."""

    name: ClassVar[str] = "grpo"
    config_class: ClassVar[type[AlgorithmConfig]] = GRPOConfig

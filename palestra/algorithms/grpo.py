"""GRPO and Dr. GRPO: compare each episode with the other episodes on its task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from palestra.algorithms.base import AlgorithmConfig, PolicyGradient, PolicyGradientConfig
from palestra.algorithms.episode import Advantages, Episode, turn_returns
from palestra.algorithms.normalize import normalize
from palestra.algorithms.options import option
from palestra.errors import BadValue

Singleton = Literal["zero", "error"]


@dataclass(frozen=True, kw_only=True)
class GroupConfig(PolicyGradientConfig):
    """Options for algorithms that compare the episodes in a group."""

    singleton: Singleton = option(
        "zero",
        "Treatment of a group in which all episodes but one failed: 'zero' sets the advantage of that "
        "episode to 0, 'error' stops training.",
        choices=("zero", "error"),
    )


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(GroupConfig):
    """Options for GRPO."""

    normalize: Literal["std", "none"] = option(
        "std",
        "Scaling of the advantages: 'std' divides them by the group's standard deviation, 'none' leaves "
        "them unscaled as in Dr. GRPO.",
        choices=("std", "none"),
    )


def group_sizes(name: str, episodes: Sequence[Episode], singleton: Singleton) -> Counter[Hashable]:
    """Count the episodes on each task. A group may be smaller than configured, since failed episodes are excluded."""
    sizes = Counter(episode.task for episode in episodes)
    single = next((episode for episode in episodes if sizes[episode.task] == 1), None)
    if single is not None and singleton == "error":
        raise BadValue(
            f"{name} compares the episodes of a task, but {single.label} is the only episode of its task. Use "
            "a group_size of at least 2; if this is due to failed episodes, singleton='zero' sets its advantage to 0"
        )
    return sizes


def singleton_fraction(sizes: Counter[Hashable]) -> dict[str, float]:
    """Return the `singleton` metric: the fraction of groups with only one episode."""
    return {"singleton": sum(size == 1 for size in sizes.values()) / len(sizes) if sizes else 0.0}


class GRPO(PolicyGradient[GRPOConfig]):
    """A_t = (R - mean_group(R)) / std_group(R) for every turn; R = sum_k gamma^k (r_k - kl KL_k).

    `normalize="none"` omits the division (Dr. GRPO; combine it with `aggregate="constant"`). `std` is the sample
    standard deviation (n - 1).
    """

    name: ClassVar[str] = "grpo"
    config_class: ClassVar[type[AlgorithmConfig]] = GRPOConfig
    needs_groups: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {"group_size": 8}

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        config = self.config
        sizes = group_sizes("GRPO", episodes, config.singleton)
        returns = turn_returns(episodes, gamma=config.gamma, kl_coef=config.kl_in_reward)
        totals = [row[:1] for row in returns]
        normalized, metrics = normalize(totals, [e.task for e in episodes], scale=config.normalize == "std")
        advantages = [row * len(episode.rewards) for row, episode in zip(normalized, episodes, strict=True)]
        return Advantages(advantages=advantages, metrics=metrics | singleton_fraction(sizes))

"""Groups of episodes on the same task: options and advantages relative to the group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from palestra.algorithms.base import PolicyGradientConfig
from palestra.algorithms.episode import Advantages, Episode
from palestra.algorithms.normalize import has_variance, normalize, weights_of
from palestra.algorithms.options import option
from palestra.errors import BadValue

Singleton = Literal["zero", "error"]


@dataclass(frozen=True, kw_only=True)
class GroupConfig(PolicyGradientConfig):
    """Options for algorithms that compare the episodes in a group."""

    singleton: Singleton = option(
        "zero",
        "Treatment of a group in which all episodes but one failed: 'zero' sets that episode's advantage to 0, "
        "'error' stops training.",
        choices=("zero", "error"),
    )
    zero_variance: Literal["exclude", "keep"] = option(
        "exclude",
        "Treatment of groups whose returns are all equal: 'exclude' removes their episodes from the loss and its "
        "denominators, 'keep' leaves them in the denominators, the KL penalty and the entropy bonus.",
        choices=("exclude", "keep"),
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


def excluded_groups(config: GroupConfig, episodes: Sequence[Episode], totals: Sequence[float]) -> list[bool] | None:
    """Return which episodes are excluded from the loss because all returns (`totals`) in their group are equal."""
    if config.zero_variance == "keep":
        return None
    rows, keys = [[total] for total in totals], [episode.task for episode in episodes]
    return [not varies for varies in has_variance(rows, keys, weights_of(episodes))]


def group_advantages(
    name: str, config: GroupConfig, episodes: Sequence[Episode], totals: Sequence[float], *, scale: bool
) -> Advantages:
    """Return (R - mean(R)) for every turn, where R is the episode's return in `totals`; `scale` divides by std(R)."""
    sizes = group_sizes(name, episodes, config.singleton)
    rows, keys = [[total] for total in totals], [episode.task for episode in episodes]
    normalized, metrics = normalize(rows, keys, scale=scale, weights=weights_of(episodes))
    return Advantages(
        advantages=[row * len(episode.rewards) for row, episode in zip(normalized, episodes, strict=True)],
        excluded=excluded_groups(config, episodes, totals),
        metrics=metrics | singleton_fraction(sizes),
    )

"""GRPO and Dr. GRPO: an episode against the others of its task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from palestra.algorithms.base import Algorithm, Credit, Episode
from palestra.algorithms.normalise import relative
from palestra.algorithms.returns import turn_returns
from palestra.errors import BadValue

Lone = Literal["refuse", "zero"]


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise BadValue(f"{name} is one of {', '.join(choices)}, got {value!r}")


def group_sizes(name: str, episodes: Sequence[Episode], lone: Lone) -> Counter[Hashable]:
    """How many episodes each task has. Failed ones are absent, so a group may be smaller than it was meant to be."""
    sizes = Counter(episode.task for episode in episodes)
    single = next((episode for episode in episodes if sizes[episode.task] == 1), None)
    if single is not None and lone == "refuse":
        raise BadValue(
            f"{name} compares the episodes of a task, and {single.where} is alone. Collect with a group_size of 2 or "
            "more; where failures can leave one alone, lone='zero' gives it no advantage"
        )
    return sizes


def lone_share(sizes: Counter[Hashable]) -> dict[str, float]:
    return {"lone": sum(size == 1 for size in sizes.values()) / len(sizes) if sizes else 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class GRPO(Algorithm):
    """A_t = (R - mean_group(R)) / std_group(R) at every turn; R = sum_k gamma^k (r_k - beta KL_k).

    `normalise="none"` leaves the division out (Dr. GRPO; take the loss's "constant" aggregation with it). The deviation
    is the sample's, n - 1.
    """

    name: ClassVar[str] = "grpo"
    needs_groups: ClassVar[bool] = True

    normalise: Literal["std", "none"] = "std"
    lone: Lone = "refuse"

    def __post_init__(self) -> None:
        Algorithm.__post_init__(self)
        check_choice("normalise", self.normalise, ("std", "none"))
        check_choice("lone", self.lone, ("refuse", "zero"))

    def credit(self, episodes: Sequence[Episode]) -> Credit:
        sizes = group_sizes("GRPO", episodes, self.lone)
        totals = [returns[:1] for returns in turn_returns(episodes, gamma=self.gamma, beta=self.beta)]
        found, metrics = relative(totals, [e.task for e in episodes], scale=self.normalise == "std")
        advantages = [row * len(episode.rewards) for row, episode in zip(found, episodes, strict=True)]
        return Credit(advantages=advantages, metrics=metrics | lone_share(sizes))

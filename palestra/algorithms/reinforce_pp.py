"""REINFORCE++: KL inside the reward, advantages normalised over the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from palestra.algorithms.base import Algorithm, Credit, Episode
from palestra.algorithms.normalise import relative
from palestra.algorithms.reinforce import env_keys
from palestra.algorithms.returns import turn_returns


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforcePP(Algorithm):
    """A_t = (G_t - mean(G)) / std(G); G_t = sum_{k>=t} gamma^{k-t} (r_k - beta KL_k).

    Global: over every turn of the batch, whatever its environment, unless `per_env`.
    """

    name: ClassVar[str] = "reinforce_pp"

    beta: float = 0.01
    per_env: bool = False

    def credit(self, episodes: Sequence[Episode]) -> Credit:
        returns = turn_returns(episodes, gamma=self.gamma, beta=self.beta)
        advantages, metrics = relative(returns, env_keys(episodes, self.per_env), scale=True)
        return Credit(advantages=advantages, metrics=metrics)

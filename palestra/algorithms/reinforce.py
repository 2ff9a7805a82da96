"""REINFORCE, plain and with Return Batch Normalisation: turn returns -> advantages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from palestra.algorithms.base import Algorithm, Credit, Episode
from palestra.algorithms.normalise import relative
from palestra.algorithms.returns import turn_returns


def env_keys(episodes: Sequence[Episode], per_env: bool) -> list[Hashable]:
    """Which numbers are taken together: those of one environment, or all."""
    return [episode.env_id if per_env else None for episode in episodes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforce(Algorithm):
    """A_t = G_t, or G_t - mean(G) with `baseline`; G_t = sum_{k>=t} gamma^{k-t} (r_k - beta KL_k).

    The mean is over all turns of the batch, or of the turn's environment (`per_env`).
    """

    name: ClassVar[str] = "reinforce"

    baseline: bool = False
    per_env: bool = True

    def credit(self, episodes: Sequence[Episode]) -> Credit:
        returns = turn_returns(episodes, gamma=self.gamma, beta=self.beta)
        if not self.baseline:
            return Credit(advantages=returns)
        advantages, metrics = relative(returns, env_keys(episodes, self.per_env), scale=False)
        return Credit(advantages=advantages, metrics=metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReBN(Algorithm):
    """A_t = (G_t - mean(G)) / std(G); G_t = sum_{k>=t} gamma^{k-t} (r_k - beta KL_k).

    Mean and deviation are over every turn of the batch, not every episode; with several environments each is normalised
    by itself (`per_env`), so that one with large rewards does not drown the others. With `per_turn` they are over the
    turns of one number: first turns among each other, second ones, and so on. That takes out what is known before an
    action, how late it is, and gives late turns their share where rewards shrink from turn to turn.
    """

    name: ClassVar[str] = "rebn"

    per_env: bool = True
    per_turn: bool = False

    def credit(self, episodes: Sequence[Episode]) -> Credit:
        returns = turn_returns(episodes, gamma=self.gamma, beta=self.beta)
        keys = env_keys(episodes, self.per_env)
        if not self.per_turn:
            advantages, metrics = relative(returns, keys, scale=True)
            return Credit(advantages=advantages, metrics=metrics)
        apart = [[value] for row in returns for value in row]
        numbered = [(key, turn) for key, row in zip(keys, returns, strict=True) for turn in range(len(row))]
        found, metrics = relative(apart, numbered, scale=True)
        each = iter(found)
        return Credit(advantages=[[next(each)[0] for _ in row] for row in returns], metrics=metrics)

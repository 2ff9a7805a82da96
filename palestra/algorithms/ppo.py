"""PPO's credit: a critic's values and rewards -> generalised advantages, over turns or over tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from palestra.algorithms.base import Algorithm, Credit, Episode, Level, unit
from palestra.algorithms.normalise import relative, spread
from palestra.algorithms.reinforce import env_keys
from palestra.errors import BadValue


def turn_gae(
    rewards: Sequence[float], values: Sequence[float], *, gamma: float, lam: float, last_value: float = 0.0
) -> list[float]:
    """A_t = d_t + gamma lam A_{t+1};  d_t = r_t + gamma V_{t+1} - V_t.

    V_t is the value at the end of turn t's observation. `last_value` stands for V after the last turn: 0 where the
    episode ended, the critic's word where it was cut short.
    """
    found: list[float] = []
    ahead, after = last_value, 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        after = reward + gamma * ahead - value + gamma * lam * after
        ahead = value
        found.append(after)
    return found[::-1]


def token_gae(
    rewards: Sequence[float],
    values: Sequence[float],
    mask: Sequence[bool],
    *,
    gamma: float,
    lam: float,
    last_value: float = 0.0,
    turns: Sequence[int] | None = None,
) -> list[float]:
    """A_i = d_i + g_i lam A_j;  d_i = r_i + g_i V_j - V_i, where token j is the next sampled one after i.

    Tokens out of `mask` were not chosen by the policy: they are stepped over, earn nothing and get 0. The discount g_i
    is gamma at each token; with `turns` (the turn of each token) it is gamma only between a turn and the next and 1
    inside one, so that gamma means what it means everywhere else.
    """
    if not len(rewards) == len(values) == len(mask) or (turns is not None and len(turns) != len(mask)):
        raise BadValue("rewards, values, mask and turns go token by token: give them the same length")
    found = [0.0] * len(rewards)
    ahead, after, turn_ahead = last_value, 0.0, None
    for i in reversed(range(len(rewards))):
        if not mask[i]:
            continue
        inside = turns is not None and turn_ahead == turns[i]
        discount = 1.0 if inside else gamma
        after = rewards[i] + discount * ahead - values[i] + discount * lam * after
        ahead, turn_ahead = values[i], None if turns is None else turns[i]
        found[i] = after
    return found


def explained_variance(returns: Sequence[Sequence[float]], values: Sequence[Sequence[float]]) -> float:
    """1 - var(returns - values) / var(returns): 1 for a perfect critic, 0 for a constant, less for a harmful one."""
    targets = [x for row in returns for x in row]
    errors = [g - v for row, said in zip(returns, values, strict=True) for g, v in zip(row, said, strict=True)]
    deviation = spread(targets)[1] if targets else 0.0
    return 1.0 - (spread(errors)[1] / deviation) ** 2 if deviation else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PPO(Algorithm):
    """A = GAE over turns (`turn_gae`), a critic's targets A + V; then, with `normalise`, (A - mean(A)) / std(A).

    Rewards are r_t - beta KL_t. Normalisation is over every turn of the environment (`per_env`) or of the batch;
    targets are never normalised.
    """

    name: ClassVar[str] = "ppo"
    needs_critic: ClassVar[bool] = True

    lam: float = 0.95
    normalise: bool = True
    per_env: bool = True

    def __post_init__(self) -> None:
        Algorithm.__post_init__(self)
        unit("lam", self.lam)

    def values(self, episode: Episode) -> Sequence[float]:
        """What the critic said, a number for each of the credit's."""
        if episode.values is None:
            raise BadValue(f"{episode.where}: PPO needs values=, the critic's at the end of each turn's observation")
        return episode.values

    def advantages(self, episode: Episode) -> list[float]:
        """As the formula says, before any normalisation."""
        rewards = episode.net_rewards(self.beta)
        last = episode.last_value if episode.truncated else 0.0
        return turn_gae(rewards, self.values(episode), gamma=self.gamma, lam=self.lam, last_value=last)

    def credit(self, episodes: Sequence[Episode]) -> Credit:
        values = [self.values(episode) for episode in episodes]
        advantages = [self.advantages(episode) for episode in episodes]
        returns = [
            [a + v for a, v in zip(row, said, strict=True)] for row, said in zip(advantages, values, strict=True)
        ]
        metrics = {"explained_variance": explained_variance(returns, values)}
        if self.normalise:
            advantages, more = relative(advantages, env_keys(episodes, self.per_env), scale=True)
            metrics |= more
        return Credit(advantages=advantages, returns=returns, metrics=metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPPO(PPO):
    """PPO with a value before every sampled token (`token_gae`): each number of its credit belongs to one such token.

    A turn's reward is earned by its last sampled token, and gamma is between turns.
    """

    name: ClassVar[str] = "ppo_token"
    level: ClassVar[Level] = "token"

    def values(self, episode: Episode) -> Sequence[float]:
        if episode.token_turns is None or episode.token_values is None:
            raise BadValue(f"{episode.where}: ppo_token needs token_values=, the critic's before each sampled token")
        return episode.token_values

    def advantages(self, episode: Episode) -> list[float]:
        values, turns = self.values(episode), episode.token_turns or ()
        rewards = [0.0] * len(turns)
        last_token = {turn: i for i, turn in enumerate(turns)}
        for turn, reward in enumerate(episode.net_rewards(self.beta)):
            rewards[last_token[turn]] = reward
        return token_gae(
            rewards,
            values,
            [True] * len(turns),
            gamma=self.gamma,
            lam=self.lam,
            last_value=episode.last_value if episode.truncated else 0.0,
            turns=turns,
        )

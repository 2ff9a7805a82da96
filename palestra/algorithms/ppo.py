"""PPO: generalized advantage estimation with a critic, over turns or over tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, get_args

from palestra.algorithms.base import AlgorithmConfig, CriticKind, Level, PolicyGradient, PolicyGradientConfig
from palestra.algorithms.episode import Advantages, Episode
from palestra.algorithms.normalize import env_keys, mean_and_std, normalize, weights_of
from palestra.algorithms.options import option
from palestra.errors import BadValue

if TYPE_CHECKING:
    from torch import Tensor

    from palestra.algorithms.losses import LossOutput


@dataclass(frozen=True, kw_only=True)
class PPOConfig(PolicyGradientConfig):
    """Options for PPO."""

    lam: float = option(
        0.95,
        "GAE lambda between turns: 0 relies on the critic, 1 uses full returns, which have less bias but more "
        "variance; within a turn, lambda is always 1.",
        at_least=0,
        at_most=1,
    )
    whiten: bool = option(True, "Normalize advantages to mean 0 and standard deviation 1.")
    normalize_per_env: bool = option(
        True, "Compute the mean and standard deviation for each environment separately instead of over the whole batch."
    )
    critic: CriticKind = option(
        "head",
        "Kind of critic: 'head' trains only a small network on the policy's hidden states, 'model' also trains a copy "
        "of the model, and 'lora' also trains LoRA adapters on the policy's weights.",
        choices=get_args(CriticKind),
    )
    value_lr: float = option(1e-3, "Learning rate of the critic's head.", at_least=0)
    critic_lr: float = option(
        1e-5,
        "Learning rate of the critic's copy of the model or LoRA adapters; about 1e-4 suits --critic lora.",
        untrained=1e-3,
        at_least=0,
    )
    value_clip: float = option(
        0.2,
        "Clip the critic's values to within this distance of the values before the update; 0 disables clipping.",
        at_least=0,
    )


class TokenPPOConfig(PPOConfig):
    """Options for PPO with one critic value per token."""


def turn_gae(
    rewards: Sequence[float], values: Sequence[float], *, gamma: float, lam: float, last_value: float = 0.0
) -> list[float]:
    """A_t = d_t + gamma lam A_{t+1};  d_t = r_t + gamma V_{t+1} - V_t.

    V_t is the value at the end of turn t's observation. `last_value` is V after the last turn: 0 if the episode
    terminated, the critic's estimate if it was truncated.
    """
    count = len(rewards)
    return gae(rewards, values, [gamma] * count, [lam] * count, last_value=last_value)[0]


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
    """A_i = d_i + g_i l_i A_j;  d_i = r_i + g_i V_j - V_i, where token j is the next sampled token after i.

    Tokens outside `mask` were not sampled by the policy: they are skipped, and their advantage is 0. By default g_i is
    gamma and l_i is lam at every token. With `turns` (the turn of each token), these values apply between turns, and
    both are 1 within a turn: gamma and lam then have the same meaning as in the other algorithms, and the start of a
    long reply gets the same credit as its end.
    """
    if not len(rewards) == len(values) == len(mask) or (turns is not None and len(turns) != len(mask)):
        raise BadValue("rewards, values, mask and turns must have the same length, one entry per token")
    sampled = [i for i, inside in enumerate(mask) if inside]
    steps = [gamma] * len(sampled), [lam] * len(sampled)
    if turns is not None:
        own = [turns[i] for i in sampled]
        steps = between_turns(own, gamma), between_turns(own, lam)
    computed, _ = gae([rewards[i] for i in sampled], [values[i] for i in sampled], *steps, last_value=last_value)
    advantages = [0.0] * len(rewards)
    for i, advantage in zip(sampled, computed, strict=True):
        advantages[i] = advantage
    return advantages


def between_turns(turns: Sequence[int], number: float) -> list[float]:
    """Return `number` at the last token of each turn and 1 at all other tokens."""
    return [1.0 if i + 1 < len(turns) and turns[i + 1] == turn else number for i, turn in enumerate(turns)]


def gae(
    rewards: Sequence[float],
    values: Sequence[float],
    discounts: Sequence[float],
    lams: Sequence[float],
    *,
    last_value: float = 0.0,
    ratios: Sequence[float] | None = None,
) -> tuple[list[float], list[float]]:
    """Return A_i = d_i + g_i l_i D_{i+1} and the critic's targets V_i + D_i, with d_i = r_i + g_i V_{i+1} - V_i.

    D_i = w_i d_i + g_i l_i min(w_i, 1) D_{i+1}, where w_i is the importance ratio of step i (V-trace, Espeholt et al.
    2018). Without `ratios`, all w are 1 and D = A. The ratio of step i is not part of A_i, since the loss applies it.
    """
    advantages: list[float] = []
    targets: list[float] = []
    next_value, following = last_value, 0.0
    for i in reversed(range(len(rewards))):
        ratio = 1.0 if ratios is None else ratios[i]
        delta = rewards[i] + discounts[i] * next_value - values[i]
        trace = discounts[i] * lams[i] * following
        advantages.append(delta + trace)
        following = ratio * delta + min(ratio, 1.0) * trace
        targets.append(values[i] + following)
        next_value = values[i]
    return advantages[::-1], targets[::-1]


def explained_variance(returns: Sequence[Sequence[float]], values: Sequence[Sequence[float]]) -> float:
    """Return 1 - Var(returns - values) / Var(returns), which is 1 for a perfect and 0 for a constant critic."""
    targets = [x for row in returns for x in row]
    errors = [
        g - v for row, estimates in zip(returns, values, strict=True) for g, v in zip(row, estimates, strict=True)
    ]
    deviation = mean_and_std(targets)[1] if targets else 0.0
    return 1.0 - (mean_and_std(errors)[1] / deviation) ** 2 if deviation else 0.0


class PPO(PolicyGradient[PPOConfig]):
    """A = GAE over turns (`turn_gae`) with critic targets A + V; with `whiten`, (A - mean(A)) / std(A).

    Rewards are r_t - kl KL_t. The mean and standard deviation are computed over all turns in an environment
    (`normalize_per_env`) or in the batch; the critic's targets are never normalized.
    """

    name: ClassVar[str] = "ppo"
    config_class: ClassVar[type[AlgorithmConfig]] = PPOConfig
    needs_critic: ClassVar[bool] = True

    @property
    def critic(self) -> CriticKind:
        return self.config.critic

    @property
    def value_lr(self) -> float:
        return self.config.value_lr

    @property
    def critic_lr(self) -> float:
        return self.config.critic_lr or 0.0

    def values(self, episode: Episode) -> Sequence[float]:
        """Return the critic's values, one per advantage."""
        if episode.values is None:
            raise BadValue(f"{episode.label}: PPO needs `values`, the critic values at the end of each observation")
        return episode.values

    def gae(self, episode: Episode) -> tuple[list[float], list[float]]:
        """Return the advantages of one episode before normalization, and the critic's targets."""
        config = self.config
        rewards = episode.penalized_rewards(config.kl_in_reward)
        return gae(
            rewards,
            self.values(episode),
            [config.discount] * len(rewards),
            [config.lam] * len(rewards),
            last_value=episode.last_value if episode.truncated else 0.0,
            ratios=episode.ratios,
        )

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        values = [self.values(episode) for episode in episodes]
        estimates = [self.gae(episode) for episode in episodes]
        advantages, returns = [row for row, _ in estimates], [targets for _, targets in estimates]
        metrics = {"explained_variance": explained_variance(returns, values)}
        if self.config.whiten:
            keys = env_keys(episodes, self.config.normalize_per_env)
            advantages, normalization = normalize(advantages, keys, scale=True, weights=weights_of(episodes))
            metrics |= normalization
        return Advantages(advantages=advantages, returns=returns, metrics=metrics)

    def critic_loss(
        self, values: Tensor, returns: Tensor, mask: Tensor, *, denominator: float, old_values: Tensor | None
    ) -> LossOutput:
        from palestra.algorithms.losses import value_loss

        clip = self.config.value_clip or None
        return value_loss(values, returns, mask, denominator=denominator, old_values=old_values, clip=clip)


class TokenPPO(PPO):
    """PPO with a critic value before every sampled token (`token_gae`) and one advantage per sampled token.

    A turn's reward is assigned to its last sampled token. Gamma and lambda are applied only between turns.
    """

    name: ClassVar[str] = "ppo_token"
    config_class: ClassVar[type[AlgorithmConfig]] = TokenPPOConfig
    level: ClassVar[Level] = "token"

    def values(self, episode: Episode) -> Sequence[float]:
        if episode.token_turns is None or episode.token_values is None:
            raise BadValue(f"{episode.label}: ppo_token needs `token_values`, the critic values of all sampled tokens")
        return episode.token_values

    def gae(self, episode: Episode) -> tuple[list[float], list[float]]:
        config = self.config
        values, turns = self.values(episode), episode.token_turns or ()
        rewards = [0.0] * len(turns)
        last_token = {turn: i for i, turn in enumerate(turns)}
        for turn, reward in enumerate(episode.penalized_rewards(config.kl_in_reward)):
            rewards[last_token[turn]] = reward
        return gae(
            rewards,
            values,
            between_turns(turns, config.discount),
            between_turns(turns, config.lam),
            last_value=episode.last_value if episode.truncated else 0.0,
            ratios=episode.token_ratios,
        )

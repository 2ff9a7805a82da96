"""How often a player solves an environment."""

from __future__ import annotations

from collections.abc import Iterable
from math import comb, sqrt
from time import monotonic
from typing import Literal, NamedTuple

from palestra.core import Env
from palestra.errors import BadValue

Player = Literal["expert", "random"]


class Rate(NamedTuple):
    solved: int
    episodes: int

    @property
    def value(self) -> float:
        return self.solved / self.episodes

    def interval(self, z: float = 1.96) -> tuple[float, float]:
        """Wilson's interval, 95% by default."""
        n, p = self.episodes, self.value
        middle = p + z * z / (2 * n)
        reach = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)

    def fits(self, stated: float) -> bool:
        """Whether a true rate of `stated` could well give this result: two-sided, one false alarm in 10,000."""
        if stated == 1.0:
            return self.solved == self.episodes  # a promise about every seed, not a mean
        p = min(max(stated, 0.002), 0.998)  # a rate measured as 0 may be a little more
        return (
            min(_tail(self.solved, self.episodes, p), _tail(self.episodes - self.solved, self.episodes, 1 - p)) > 5e-5
        )

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.value:.3f} ({low:.3f} to {high:.3f}, {self.episodes} episodes)"


def _tail(k: int, n: int, p: float) -> float:
    """P(X >= k) for X ~ Binomial(n, p)."""
    return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


def next_action(env: Env, player: Player) -> str:
    """What `player` does now."""
    if player == "random":
        return env.sample_random_action()
    action = env.expert_action()
    if action is None:
        raise BadValue(f"{env!r} has no expert")
    return action


def success_rate(env: Env, player: Player, seeds: Iterable[int], *, seconds: float = float("inf")) -> Rate:
    """Play an episode a seed, at least three, for at most about `seconds`."""
    solved = episodes = 0
    end = monotonic() + seconds
    for seed in seeds:
        if episodes >= 3 and monotonic() > end:
            break
        env.reset(seed=seed)
        step = env.step(next_action(env, player))
        while not step.done:
            step = env.step(next_action(env, player))
        solved += bool(step.info["success"])
        episodes += 1
    return Rate(solved, episodes)

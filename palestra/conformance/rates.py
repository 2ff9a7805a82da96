"""Measure the success rate of the expert or the random player."""

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
        """Return the Wilson score interval, 95% by default."""
        n, p = self.episodes, self.value
        middle = p + z * z / (2 * n)
        reach = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        scale = 1 + z * z / n
        return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)

    def fits(self, stated: float) -> bool:
        """Return whether the measurement is consistent with a true rate of `stated` (two-sided test, alpha 0.0001)."""
        if stated == 1.0:
            return self.solved == self.episodes  # a rate of 1 in the spec means that every seed is solved
        p = min(max(stated, 0.002), 0.998)  # the true rate may differ slightly from a measured 0 or 1
        return (
            min(_tail(self.solved, self.episodes, p), _tail(self.episodes - self.solved, self.episodes, 1 - p)) > 5e-5
        )

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.value:.3f} ({low:.3f} to {high:.3f}, {self.episodes} episodes)"


def _tail(k: int, n: int, p: float) -> float:
    """Return P(X >= k) for X ~ Binomial(n, p)."""
    return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


def next_action(env: Env, player: Player) -> str:
    """Return the next action of `player`."""
    if player == "random":
        return env.sample_random_action()
    action = env.expert_action()
    if action is None:
        raise BadValue(f"{env!r} has no expert")
    return action


def success_rate(env: Env, player: Player, seeds: Iterable[int], *, seconds: float = float("inf")) -> Rate:
    """Play one episode per seed; stop after about `seconds` seconds if at least three episodes have been played."""
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

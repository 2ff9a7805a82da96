"""Measure the success rates of the expert, random, echo and constant players."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import comb, sqrt
from time import monotonic
from typing import Literal, NamedTuple

from palestra.conformance.players import Strategy, constant_strategies, echo_strategies
from palestra.core import Env
from palestra.errors import BadValue

Player = Literal["expert", "random", "echo", "constant"]

MAX_TURNS_WITHOUT_BUDGET = 1_000  # episodes of an env without a turn limit stop after this many turns
SCREENED = 4  # number of episodes after which only a player's best strategies continue
FINALISTS = 4  # number of strategies that continue
TRAINING_SEED = 10**6  # first seed of the episodes that the constant player learns from


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

    def exceeds(self, stated: float, alpha: float = 1e-5) -> bool:
        """Return whether the measurement shows that the true rate is above `stated` (one-sided test)."""
        return _tail(self.solved, self.episodes, max(stated, 0.05)) < alpha

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.value:.3f} ({low:.3f} to {high:.3f}, {self.episodes} episodes)"


def _tail(k: int, n: int, p: float) -> float:
    """Return P(X >= k) for X ~ Binomial(n, p)."""
    return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


def next_action(env: Env, player: Player) -> str:
    """Return the expert's or the random player's next action."""
    if player == "random":
        return env.sample_random_action()
    action = env.expert_action() if player == "expert" else None
    if action is None:
        raise BadValue(f"{env!r} has no {player} player" if player != "expert" else f"{env!r} has no expert")
    return action


def success_rate(env: Env, player: Player, seeds: Iterable[int], *, seconds: float = float("inf")) -> Rate:
    """Play one episode per seed; stop after about `seconds` seconds if at least three episodes have been played.

    The echo and constant players get the rate of their best strategy. All strategies play the first
    `SCREENED` seeds, and only the best ones play the others.
    """
    if player == "echo":
        env.reset(seed=0)
        return best_rate(env, echo_strategies(env), seeds, seconds=seconds)
    if player == "constant":
        actions = expert_actions(env, range(TRAINING_SEED, TRAINING_SEED + 200), seconds=seconds / 2)
        return best_rate(env, constant_strategies(actions), seeds, seconds=seconds / 2)
    return best_rate(env, [lambda env, _: next_action(env, player)], seeds, seconds=seconds)


def expert_actions(env: Env, seeds: Iterable[int], *, seconds: float) -> list[list[str]]:
    """Return the expert's actions in each episode; stop after about `seconds` seconds."""
    episodes: list[list[str]] = []
    end = monotonic() + seconds
    for seed in seeds:
        if len(episodes) >= 3 and monotonic() > end:
            break
        env.reset(seed=seed)
        episodes.append([next_action(env, "expert")])
        while len(episodes[-1]) < MAX_TURNS_WITHOUT_BUDGET and not env.step(episodes[-1][-1]).done:
            episodes[-1].append(next_action(env, "expert"))
    return episodes


def best_rate(
    env: Env,
    strategies: Sequence[Strategy],
    seeds: Iterable[int],
    *,
    seconds: float = float("inf"),
    min_episodes: int = 3,
) -> Rate:
    """Return the rate of the strategy that solves the most episodes.

    Stops after about `seconds` seconds if every strategy has played `min_episodes` episodes; 0 allows strategies that
    have not played at all.
    """
    remaining = list(range(len(strategies)))
    solved, episodes = [0] * len(strategies), [0] * len(strategies)
    end = monotonic() + seconds
    for count, seed in enumerate(seeds):
        if count == SCREENED:
            remaining = sorted(remaining, key=lambda index: -solved[index])[:FINALISTS]
        if count >= max(min_episodes, 1) and monotonic() > end:
            break
        for index, success in zip(remaining, _results(env, [strategies[i] for i in remaining], seed), strict=False):
            solved[index] += success
            episodes[index] += 1
            if count >= min_episodes and monotonic() > end:
                break
    best = max(remaining, key=lambda index: (solved[index], episodes[index]))
    return Rate(solved[best], episodes[best])


def _results(env: Env, strategies: Sequence[Strategy], seed: int) -> Iterator[bool]:
    """Yield, for each strategy, whether it solves the seed's task."""
    if env.max_turns != 1 or len(strategies) == 1:
        yield from (_episode(env, strategy, seed) for strategy in strategies)
        return
    observation, _ = env.reset(seed=seed)
    results: dict[str, bool] = {}
    for strategy in strategies:  # several strategies may give the same answer
        reply = strategy(env, observation)
        if reply not in results:
            results[reply] = _solves(env.fork(), reply)
        yield results[reply]


def _solves(env: Env, reply: str) -> bool:
    with env:
        return bool(env.step(reply).info.get("success"))


def _episode(env: Env, strategy: Strategy, seed: int) -> bool:
    observation, _ = env.reset(seed=seed)
    for _ in range(env.max_turns or MAX_TURNS_WITHOUT_BUDGET):
        step = env.step(strategy(env, observation))
        if step.done:
            return bool(step.info["success"])
        observation = step.observation
    return False

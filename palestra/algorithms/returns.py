"""Rewards -> returns: what was still to come, seen from each turn."""

from __future__ import annotations

from collections.abc import Sequence

from palestra.algorithms.base import Episode, unit


def returns_to_go(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """G_t = r_t + gamma G_{t+1}: a reward counts for its own turn and, discounted, for the earlier ones."""
    unit("gamma", gamma)
    found: list[float] = []
    after = 0.0
    for reward in reversed(rewards):
        after = reward + gamma * after
        found.append(after)
    return found[::-1]


def turn_returns(episodes: Sequence[Episode], *, gamma: float, beta: float) -> list[list[float]]:
    """The return-to-go of every turn of a batch, KL taken off."""
    return [returns_to_go(episode.net_rewards(beta), gamma) for episode in episodes]

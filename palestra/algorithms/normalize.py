"""Normalize numbers with the mean and standard deviation of their group."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import fsum, sqrt

from palestra.algorithms.episode import Episode

# A standard deviation below these bounds is only rounding error; dividing by it would amplify noise.
ABSOLUTE, RELATIVE = 1e-8, 1e-9


def mean_and_std(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation (n - 1), which is exactly 0 if all numbers are equal."""
    mean = fsum(numbers) / len(numbers)
    if len(numbers) < 2:
        return mean, 0.0
    deviation = sqrt(fsum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1))
    negligible = deviation <= max(ABSOLUTE, RELATIVE * max(map(abs, numbers)))
    return mean, 0.0 if negligible else deviation


def normalize(
    rows: Sequence[Sequence[float]], keys: Sequence[Hashable], *, scale: bool
) -> tuple[list[list[float]], dict[str, float]]:
    """Subtract the mean over all rows with the same key; with `scale`, also divide by their standard deviation.

    Every number has the same weight, so longer rows have more influence. If the numbers for a key have no variance, its
    rows become zero, never NaN; the `zero_variance` metric is the fraction of such keys.
    """
    pools: dict[Hashable, list[float]] = {}
    for key, row in zip(keys, rows, strict=True):
        pools.setdefault(key, []).extend(row)
    statistics = {key: mean_and_std(pool) for key, pool in pools.items()}
    normalized = []
    for key, row in zip(keys, rows, strict=True):
        mean, deviation = statistics[key]
        divisor = deviation if scale else 1.0
        normalized.append([(x - mean) / divisor if deviation else 0.0 for x in row])
    constant = sum(deviation == 0.0 for _, deviation in statistics.values())
    return normalized, {"zero_variance": constant / len(statistics) if statistics else 0.0}


def env_keys(episodes: Sequence[Episode], per_env: bool) -> list[Hashable]:
    """Return each episode's normalization key: its environment, or one key for the whole batch."""
    return [episode.env_id if per_env else None for episode in episodes]

"""Normalize numbers with the mean and standard deviation of their group."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import fsum, sqrt

from palestra.algorithms.episode import Episode

# A standard deviation below these bounds is only rounding error; dividing by it would amplify noise.
ABSOLUTE, RELATIVE = 1e-8, 1e-9


def mean_and_std(numbers: Sequence[float], weights: Sequence[float] | None = None) -> tuple[float, float]:
    """Return the mean and the sample standard deviation (n - 1), which is exactly 0 if all numbers are equal.

    With `weights`, both are weighted, and n - 1 becomes sum(w) - sum(w^2) / sum(w).
    """
    if weights is None:
        weights = [1.0] * len(numbers)
    total = fsum(weights)
    if not total > 0:
        return 0.0, 0.0
    mean = fsum(w * x for w, x in zip(weights, numbers, strict=True)) / total
    freedom = total - fsum(w * w for w in weights) / total
    if len(numbers) < 2 or freedom <= RELATIVE * total:
        return mean, 0.0
    deviation = sqrt(fsum(w * (x - mean) ** 2 for w, x in zip(weights, numbers, strict=True)) / freedom)
    negligible = deviation <= max(ABSOLUTE, RELATIVE * max(map(abs, numbers)))
    return mean, 0.0 if negligible else deviation


def normalize(
    rows: Sequence[Sequence[float]],
    keys: Sequence[Hashable],
    *,
    scale: bool,
    weights: Sequence[float] | None = None,
) -> tuple[list[list[float]], dict[str, float]]:
    """Subtract the mean over all rows with the same key; with `scale`, also divide by their standard deviation.

    Every number has the weight of its row (default 1), so longer rows have more influence. If the numbers for a key
    have no variance, its rows become zero, never NaN; the `zero_variance` metric is the fraction of such keys.
    """
    statistics = _statistics(rows, keys, weights)
    normalized = []
    for key, row in zip(keys, rows, strict=True):
        mean, deviation = statistics[key]
        divisor = deviation if scale else 1.0
        normalized.append([(x - mean) / divisor if deviation else 0.0 for x in row])
    constant = sum(deviation == 0.0 for _, deviation in statistics.values())
    return normalized, {"zero_variance": constant / len(statistics) if statistics else 0.0}


def has_variance(
    rows: Sequence[Sequence[float]], keys: Sequence[Hashable], weights: Sequence[float] | None = None
) -> list[bool]:
    """Return for each row whether the numbers in all rows with the same key differ."""
    statistics = _statistics(rows, keys, weights)
    return [statistics[key][1] > 0 for key in keys]


def _statistics(
    rows: Sequence[Sequence[float]], keys: Sequence[Hashable], weights: Sequence[float] | None
) -> dict[Hashable, tuple[float, float]]:
    pools: dict[Hashable, tuple[list[float], list[float]]] = {}
    for key, row, weight in zip(keys, rows, weights or [1.0] * len(rows), strict=True):
        numbers, their_weights = pools.setdefault(key, ([], []))
        numbers.extend(row)
        their_weights.extend([weight] * len(row))
    return {key: mean_and_std(*pool) for key, pool in pools.items()}


def weights_of(episodes: Sequence[Episode]) -> list[float]:
    """Return the importance weight of each episode."""
    return [episode.weight for episode in episodes]


def env_keys(episodes: Sequence[Episode], per_env: bool) -> list[Hashable]:
    """Return each episode's normalization key: its environment, or one key for the whole batch."""
    return [episode.env_id if per_env else None for episode in episodes]

"""Numbers -> the same numbers relative to others: of their environment, their group, their batch."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import fsum, sqrt

ABSOLUTE, RELATIVE = 1e-8, 1e-9  # below these a spread is rounding, and dividing by it would train on noise


def spread(numbers: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (n - 1); the latter is exactly 0 where the numbers are all the same."""
    mean = fsum(numbers) / len(numbers)
    if len(numbers) < 2:
        return mean, 0.0
    deviation = sqrt(fsum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1))
    flat = deviation <= max(ABSOLUTE, RELATIVE * max(map(abs, numbers)))
    return mean, 0.0 if flat else deviation


def relative(
    rows: Sequence[Sequence[float]], keys: Sequence[Hashable], *, scale: bool
) -> tuple[list[list[float]], dict[str, float]]:
    """Each number minus the mean over the rows with the same key, divided by their deviation where `scale`.

    Every number counts once, so long rows count more. Where there is no spread the answer is zero, never NaN, and the
    metrics say for how many of the keys.
    """
    pools: dict[Hashable, list[float]] = {}
    for key, row in zip(keys, rows, strict=True):
        pools.setdefault(key, []).extend(row)
    known = {key: spread(pool) for key, pool in pools.items()}
    found = []
    for key, row in zip(keys, rows, strict=True):
        mean, deviation = known[key]
        divisor = deviation if scale else 1.0
        found.append([(x - mean) / divisor if deviation else 0.0 for x in row])
    flat = sum(deviation == 0.0 for _, deviation in known.values())
    return found, {"flat": flat / len(known) if known else 0.0}

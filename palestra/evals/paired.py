"""Confidence intervals and significance tests for paired differences: pure functions without dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, fsum, sqrt
from random import Random
from statistics import variance

from palestra.evals.stats import RESAMPLES, Estimate, Z, mean, student

EXACT = 14  # largest number of differences for an exact permutation test
FLIPS = 10_000


def difference(values: Sequence[float], *, resamples: int = RESAMPLES) -> Estimate:
    """Return the mean of paired differences in success (one per task, from -1 to 1) with its confidence interval."""
    n = len(values)
    middle = fsum(values) / n
    if any(values):
        if any(value not in (-1.0, 0.0, 1.0) for value in values):
            return mean([[value] for value in values], bounds=(-1.0, 1.0), resamples=resamples)
        if n > 1 and (spread := variance(values)) > 0:
            half_width = student(n - 1) * sqrt(spread / n)
            return Estimate(value=middle, low=max(-1.0, middle - half_width), high=min(1.0, middle + half_width), n=n)
    # If all differences are equal, one pseudo-pair in each direction (Bonett and Price) gives a non-empty interval.
    center = fsum(values) / (n + 2)
    half_width = Z * sqrt(((fsum(value * value for value in values) + 2) / (n + 2) - center**2) / (n + 2))
    return Estimate(value=middle, low=max(-1.0, center - half_width), high=min(1.0, center + half_width), n=n)


def mcnemar(wins: int, losses: int) -> float:
    """Return the p-value of the exact two-sided McNemar test."""
    n = wins + losses
    if n == 0:
        return 1.0
    tail = sum(comb(n, i) for i in range(min(wins, losses) + 1))
    return float(min(1.0, 2 * tail / 2**n))


def sign_flips(values: Sequence[float]) -> float:
    """Return the p-value of the sign-flip permutation test for paired differences.

    The test is exact for few differences; otherwise it uses 10,000 random permutations with a fixed seed.
    """
    magnitudes = [abs(value) for value in values if value]
    if not magnitudes:
        return 1.0
    far = abs(fsum(values)) * (1 - 1e-9) - 1e-12
    if len(magnitudes) <= EXACT:
        sums = [magnitudes[0]]  # the first sign is fixed, because flipping all signs only negates the sum
        for value in magnitudes[1:]:
            sums = [total + sign for total in sums for sign in (value, -value)]
        return sum(abs(total) >= far for total in sums) / len(sums)
    rng, whole = Random(len(magnitudes)), fsum(magnitudes)
    hits = 0
    for _ in range(FLIPS):
        bits = rng.getrandbits(len(magnitudes))
        minus = 0.0
        for value in magnitudes:
            if bits & 1:
                minus += value
            bits >>= 1
        hits += abs(whole - 2 * minus) >= far
    return (hits + 1) / (FLIPS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values after Holm's step-down correction, in the same order."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    found, worst = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        worst = max(worst, min(1.0, p_values[index] * (len(p_values) - place)))
        found[index] = worst
    return found

"""Check on simulated data that the coverage of the 95% intervals is between 93% and 97%."""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from random import Random

import pytest

from palestra.evals.paired import difference
from palestra.evals.stats import Estimate, mean, mean_of_means, mean_of_rates, rate

Draw = Callable[[Random], Estimate]


def coverage(draw: Draw, truth: float, samples: int) -> float:
    """Return the fraction of intervals that contain `truth`; a missing interval counts as a miss."""
    rng = Random(2026)
    intervals = [draw(rng) for _ in range(samples)]
    hits = [one.low is not None and one.high is not None and one.low <= truth <= one.high for one in intervals]
    return sum(hits) / samples


def sound(share: float) -> bool:
    return 0.93 <= share <= 0.97


@pytest.mark.parametrize("n", [30, 100, 300])
def test_success_of_single_attempts(n: int) -> None:
    """Compute the exact coverage from the binomial distribution, averaged over rates because coverage oscillates."""
    intervals = [rate([[i < solved] for i in range(n)]) for solved in range(n + 1)]
    shares = []
    for p in [i / 50 for i in range(3, 48)]:
        hit = [one.low is not None and one.high is not None and one.low <= p <= one.high for one in intervals]
        shares.append(sum(comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1) if hit[c]))
    assert sound(sum(shares) / len(shares))
    assert sum(map(sound, shares)) >= 0.8 * len(shares)


@pytest.mark.parametrize(
    ("a", "b", "tasks", "k"),
    [(0.5, 0.5, 50, 4), (0.3, 1.7, 50, 4), (2, 2, 100, 2), (5, 5, 30, 8), (1, 9, 100, 4), (200, 200, 50, 4)],
)
def test_success_of_several_attempts(a: float, b: float, tasks: int, k: int) -> None:
    """Sample task difficulties from a beta distribution, so that attempts at one task are correlated."""

    def draw(rng: Random) -> Estimate:
        chances = [rng.betavariate(a, b) for _ in range(tasks)]
        return rate([[rng.random() < p for _ in range(k)] for p in chances])

    assert sound(coverage(draw, a / (a + b), 1000))


def test_treating_attempts_as_tasks_would_be_too_narrow() -> None:
    """Check that the interval is far too short when attempts are treated as independent tasks."""

    def draw(rng: Random) -> Estimate:
        chances = [rng.betavariate(0.5, 0.5) for _ in range(50)]
        return rate([[rng.random() < p] for p in chances for _ in range(4)])

    assert coverage(draw, 0.5, 400) < 0.85


@pytest.mark.parametrize(
    "rates",
    [(0.5, 0.5, 0.5), (0.1, 0.3, 0.5, 0.9), (0.02,) * 8, (0.99, 0.5), (0.0, 0.5), tuple(i / 12 for i in range(13))],
)
def test_success_over_environments(rates: tuple[float, ...]) -> None:
    def draw(rng: Random) -> Estimate:
        return mean_of_rates([rate([[rng.random() < p] for _ in range(50)]) for p in rates])

    assert sound(coverage(draw, sum(rates) / len(rates), 1500))


VALUES: dict[str, tuple[Callable[[Random], float], float]] = {
    "normal": (lambda rng: rng.gauss(1, 2), 1.0),
    "skewed": (lambda rng: rng.expovariate(1.0), 1.0),
    "flat": (lambda rng: rng.random(), 0.5),
    "solved or partly": (lambda rng: 1.0 if rng.random() < 0.3 else rng.randrange(3) / 5, 0.44),
    "with penalties": (
        lambda rng: 1.0 - 0.1 * rng.randrange(3) if rng.random() < 0.4 else -0.1 * rng.randrange(4),
        0.27,
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_means(kind: str) -> None:
    value, truth = VALUES[kind]
    assert sound(coverage(lambda rng: mean([[value(rng)] for _ in range(40)], resamples=200), truth, 600))


def test_means_of_tasks_with_several_attempts() -> None:
    """Sample the scores of four attempts that share the difficulty of their task."""

    def draw(rng: Random) -> Estimate:
        levels = [rng.betavariate(0.5, 1.5) for _ in range(40)]
        return mean([[min(1.0, max(0.0, rng.gauss(level, 0.05))) for _ in range(4)] for level in levels], resamples=200)

    rng = Random(9)
    truth = sum(min(1.0, max(0.0, rng.gauss(rng.betavariate(0.5, 1.5), 0.05))) for _ in range(60_000)) / 60_000
    assert sound(coverage(draw, truth, 600))


def test_means_over_environments() -> None:
    def draw(rng: Random) -> Estimate:
        parts = [mean([[value(rng)] for _ in range(30)], resamples=200) for value, _ in VALUES.values()]
        return mean_of_means(parts)

    truth = sum(truth for _, truth in VALUES.values()) / len(VALUES)
    assert sound(coverage(draw, truth, 400))


@pytest.mark.parametrize(("up", "down", "n"), [(0.1, 0.1, 60), (0.15, 0.05, 100), (0.3, 0.2, 50), (0.1, 0.01, 200)])
def test_paired_differences_of_success(up: float, down: float, n: int) -> None:
    def draw(rng: Random) -> Estimate:
        drawn = [rng.random() for _ in range(n)]
        return difference([1.0 if x < up else -1.0 if x < up + down else 0.0 for x in drawn])

    assert sound(coverage(draw, up - down, 2000))


def test_paired_differences_of_several_attempts() -> None:
    """Sample four attempts per agent at tasks of the same difficulty; the second agent is slightly better."""

    def draw(rng: Random) -> Estimate:
        values = []
        for _ in range(40):
            p = rng.betavariate(0.5, 0.5) * 0.9
            values.append(sum((rng.random() < p + 0.1) - (rng.random() < p) for _ in range(4)) / 4)
        return difference(values, resamples=200)

    assert sound(coverage(draw, 0.1, 600))

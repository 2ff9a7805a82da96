"""Estimates with 95% confidence intervals: pure, deterministic functions without dependencies.

Choice of intervals (`tests/evals/test_coverage.py` measures their coverage):

- success rate of independent episodes: Wilson score interval;
- success rate with several attempts per task: Wilson with the effective sample size, since attempts at one task are
  correlated;
- other means: the average of Student's t interval, which is too narrow for skewed values, and the bootstrap-t interval,
  which is too wide for few or discrete values; tasks are resampled, not attempts;
- means over several environments: Wilson for rates, with the environments' variances added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import atan, comb, cos, fsum, inf, pi, sin, sqrt
from operator import itemgetter
from random import Random
from statistics import NormalDist

from palestra.conformance.rates import Rate
from palestra.errors import BadValue

Z = NormalDist().inv_cdf(0.975)
RESAMPLES = 1000
MAX_CACHED_DRAWS = 100_000  # larger sets of resamples are drawn again for every mean

Draw = Callable[[Sequence[float]], Sequence[float]]  # draws one resample from the values


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value and its 95% confidence interval; the interval is None for the mean of identical values."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 0  # number of independent tasks
    weight: float = 0.0  # effective sample size of a rate

    def scaled(self, start: float, end: float) -> Estimate:
        """Rescale the estimate linearly so that `start` maps to 0 and `end` to 1."""
        low, high = (None if edge is None else (edge - start) / (end - start) for edge in (self.low, self.high))
        return Estimate(value=(self.value - start) / (end - start), low=low, high=high, n=self.n)


def rate(tasks: Sequence[Sequence[bool]]) -> Estimate:
    """Return the success rate over tasks, each with one or more attempts; every task has the same weight."""
    means = [sum(task) / len(task) for task in tasks if task]
    if not means:
        raise BadValue("a rate needs at least one episode")
    episodes, n = sum(map(len, tasks)), len(means)
    p = _mean(means)
    if episodes == n:  # with one attempt per task, the attempts are independent
        return _wilson(p, float(n), n)
    spread = _variance(means) / n if n > 1 else 0.0
    if spread <= 0:  # the correlation between attempts cannot be estimated; assume 1
        return _wilson(p, float(n), n)
    worth = p * (1 - p) / spread * (Z / student(n - 1)) ** 2
    return _wilson(p, min(max(worth, 1.0), float(episodes)), n)


def mean(
    tasks: Sequence[Sequence[float]], *, bounds: tuple[float, float] = (-inf, inf), resamples: int = RESAMPLES
) -> Estimate:
    """Return the mean over tasks of the mean over attempts; tasks are resampled for the confidence interval."""
    values = [_mean(task) for task in tasks if task]
    if not values:
        raise BadValue("a mean needs at least one episode")
    n, middle = len(values), _mean(values)
    kinds = sorted(set(values))
    if len(kinds) == 1:
        return Estimate(value=middle, n=n)
    if len(kinds) == 2:  # two distinct values form a rate, for which resampling performs poorly
        bottom, top = kinds
        interval = _wilson((middle - bottom) / (top - bottom), float(n), n)
        low, high = (bottom + (edge or 0.0) * (top - bottom) for edge in (interval.low, interval.high))
    else:
        low, high = _resampled(values, middle, resamples)
    return Estimate(value=middle, low=max(low, bounds[0]), high=min(high, bounds[1]), n=n)


def mean_of_rates(rates: Sequence[Estimate]) -> Estimate:
    """Return the unweighted mean of several environments' success rates."""
    count = len(rates)
    p = _mean([one.value for one in rates])
    if count == 1:
        return rates[0]
    # Shrink rates toward 0.5, so that an environment without a success in a few episodes has a nonzero variance.
    shrunk = [(one.value * one.weight + 1) / (one.weight + 2) for one in rates]
    spread = fsum(q * (1 - q) / one.weight for q, one in zip(shrunk, rates, strict=True)) / count**2
    # A sample stratified by environment is at least as informative as a simple random sample of the same size.
    least = count**2 / fsum(1 / one.weight for one in rates)
    return _wilson(p, max(p * (1 - p) / spread, least), sum(one.n for one in rates))


def mean_of_means(means: Sequence[Estimate]) -> Estimate:
    """Return the unweighted mean of several environments' means; half-widths add in quadrature."""
    value = _mean([one.value for one in means])
    n = sum(one.n for one in means)
    if all(one.low is None for one in means):
        return Estimate(value=value, n=n)
    below = sqrt(fsum((one.value - one.low) ** 2 for one in means if one.low is not None)) / len(means)
    above = sqrt(fsum((one.high - one.value) ** 2 for one in means if one.high is not None)) / len(means)
    return Estimate(value=value, low=value - below, high=value + above, n=n)


def pass_at(k: int, attempts: int, solved: int) -> float:
    """Return the unbiased pass@k estimate: the probability that at least one of k attempts succeeds."""
    _check_attempts(k, attempts, solved)
    return 1.0 - comb(attempts - solved, k) / comb(attempts, k)


def pass_all(k: int, attempts: int, solved: int) -> float:
    """Return the unbiased pass^k estimate: the probability that all of k attempts succeed."""
    _check_attempts(k, attempts, solved)
    return comb(solved, k) / comb(attempts, k)


@cache
def student(freedom: int) -> float:
    """Return the 97.5% quantile of Student's t distribution."""
    if freedom < 1:
        raise BadValue(f"the degrees of freedom must be at least 1, got {freedom}")
    if freedom > 1000:
        return Z + (Z**3 + Z) / (4 * freedom)  # accurate to six decimal places
    low, high = Z, 12.8  # the quantile for one degree of freedom is 12.7062
    for _ in range(60):
        middle = (low + high) / 2
        if _student_tail(middle, freedom) > 0.025:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _student_tail(t: float, freedom: int) -> float:
    """Return P(T > t), computed with the finite sums for odd and even degrees of freedom."""
    angle = atan(t / sqrt(freedom))
    c2 = cos(angle) ** 2
    if freedom % 2:
        total, term = 0.0, cos(angle)
        for i in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= c2 * 2 * i / (2 * i + 1)
        inside = 2 / pi * (angle + sin(angle) * total)
    else:
        total, term = 0.0, 1.0
        for i in range(1, freedom // 2 + 1):
            total += term
            term *= c2 * (2 * i - 1) / (2 * i)
        inside = sin(angle) * total
    return (1 - inside) / 2


def _wilson(p: float, worth: float, n: int) -> Estimate:
    """Return the Wilson score interval; the effective sample size `worth` may be fractional."""
    low, high = Rate(p * worth, worth).interval(Z)  # type: ignore[arg-type]  # the formula also holds for fractional counts
    return Estimate(value=p, low=min(low, p), high=max(high, p), n=n, weight=worth)


def _resampled(values: Sequence[float], middle: float, resamples: int) -> tuple[float, float]:
    """Return the average of Student's t interval and the bootstrap-t interval."""
    n = len(values)
    error = sqrt(_variance(values) / n)
    # A smaller standard error is only a rounding error, because all values in the resample are equal.
    tiny = error * 1e-6
    squares = [x * x for x in values]
    statistics = []
    for draw in _cached_draws(n, resamples) if n * resamples <= MAX_CACHED_DRAWS else _draws(n, resamples):
        center = sum(draw(values)) / n
        own_error = sqrt(max(0.0, sum(draw(squares)) / n - center * center) / (n - 1))
        deviation = center - middle
        statistics.append(
            deviation / own_error if own_error > tiny else inf if deviation > 0 else -inf if deviation < 0 else 0.0
        )
    statistics.sort()
    edge = round(0.025 * (resamples - 1))
    # Clip to the range of the values, since the t statistic is unbounded if resamples have no variance.
    low = max(middle - statistics[resamples - 1 - edge] * error, min(values))
    high = min(middle - statistics[edge] * error, max(values))
    half_width = student(n - 1) * error
    return (low + middle - half_width) / 2, (high + middle + half_width) / 2


def _draws(n: int, resamples: int) -> Iterator[Draw]:
    """Yield functions that draw n of n values with replacement.

    The seed is fixed, so that the same values always give the same interval.
    """
    rng = Random(n)
    return (itemgetter(*rng.choices(range(n), k=n)) for _ in range(resamples))


@lru_cache(maxsize=8)
def _cached_draws(n: int, resamples: int) -> list[Draw]:
    return list(_draws(n, resamples))


def _check_attempts(k: int, attempts: int, solved: int) -> None:
    if not 1 <= k <= attempts or not 0 <= solved <= attempts:
        raise BadValue(
            "k must be from 1 to attempts, and solved from 0 to attempts; "
            f"got k={k}, attempts={attempts}, solved={solved}"
        )


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    middle = _mean(values)
    return fsum((value - middle) ** 2 for value in values) / (len(values) - 1)

"""Compare estimates with closed forms, published tables and brute-force results."""

from __future__ import annotations

from itertools import combinations, product
from math import comb, fsum, isclose, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import BadValue
from palestra.evals.paired import difference, holm, mcnemar, sign_flips
from palestra.evals.stats import Estimate, Z, mean, mean_of_means, mean_of_rates, pass_all, pass_at, rate, student

TASKS = st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=2, max_size=30)


def edges(estimate: Estimate) -> tuple[float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


# Rates


@given(st.integers(0, 60), st.integers(1, 60))
def test_wilson_bounds_satisfy_their_equation(solved: int, extra: int) -> None:
    n = solved + extra
    estimate = rate([[i < solved] for i in range(n)])
    p = solved / n
    assert isclose(estimate.value, p)
    for edge in edges(estimate):
        if 0 < edge < 1:  # (p - edge)^2 = z^2 edge (1 - edge) / n
            assert isclose((p - edge) ** 2, Z**2 * edge * (1 - edge) / n, rel_tol=1e-6, abs_tol=1e-12)


def test_wilson_interval_of_known_cases() -> None:
    low, high = edges(rate([[True]] * 10 + [[False]] * 10))
    assert (round(low, 4), round(high, 4)) == (0.2993, 0.7007)
    assert edges(rate([[False]] * 20))[0] == 0.0
    assert isclose(edges(rate([[False]] * 20))[1], Z**2 / (20 + Z**2))


@given(TASKS)
def test_attempts_at_one_task_have_at_most_the_weight_of_independent_tasks(tasks: list[list[bool]]) -> None:
    apart = rate([[attempt] for task in tasks for attempt in task])
    together = rate(tasks)
    assert isclose(apart.value, together.value, abs_tol=1e-12)
    assert together.weight <= apart.weight + 1e-9
    low, high = edges(together)
    assert low <= edges(apart)[0] + 1e-9
    assert high >= edges(apart)[1] - 1e-9


def test_identical_attempts_have_the_weight_of_one_attempt() -> None:
    outcomes = [i % 3 == 0 for i in range(60)]
    four, one = rate([[outcome] * 4 for outcome in outcomes]), rate([[outcome] for outcome in outcomes])
    # The estimates differ only in the quantile (normal instead of Student's t) and in n instead of n - 1.
    assert isclose(four.weight, one.weight, rel_tol=0.07)


def test_estimates_without_episodes_raise() -> None:
    with pytest.raises(BadValue, match="at least one episode"):
        rate([])
    with pytest.raises(BadValue, match="at least one episode"):
        mean([[]])


def test_mean_of_rates_of_equal_environments_equals_the_pooled_rate() -> None:
    parts = [rate([[i < 30] for i in range(60)]) for _ in range(4)]
    pooled = rate([[i % 2 == 0] for i in range(240)])
    together = mean_of_rates(parts)
    assert isclose(together.value, pooled.value)
    for a, b in zip(edges(together), edges(pooled), strict=True):
        assert isclose(a, b, abs_tol=1e-3)


def test_mean_of_rates_is_more_precise_than_the_rate_of_the_mixture() -> None:
    parts = [rate([[i < solved] for i in range(50)]) for solved in (1, 49)]
    low, high = edges(mean_of_rates(parts))
    mixture = edges(rate([[i < 50] for i in range(100)]))
    assert high - low < (mixture[1] - mixture[0]) / 2


# Means


def test_student_quantiles_equal_published_ones() -> None:
    published = {1: 12.7062, 2: 4.3027, 4: 2.7764, 9: 2.2622, 29: 2.0452, 99: 1.9842, 1000: 1.9623, 5000: 1.9604}
    assert {freedom: round(student(freedom), 4) for freedom in published} == published
    with pytest.raises(BadValue, match="at least 1"):
        student(0)


def test_interval_of_normal_values_is_students_t_interval() -> None:
    rng = Random(1)
    values = [rng.gauss(3, 2) for _ in range(400)]
    estimate = mean([[value] for value in values])
    middle = sum(values) / 400
    error = sqrt(sum((v - middle) ** 2 for v in values) / 399 / 400)
    low, high = edges(estimate)
    assert isclose(estimate.value, middle)
    assert isclose(low, middle - student(399) * error, abs_tol=0.15 * error)
    assert isclose(high, middle + student(399) * error, abs_tol=0.15 * error)


def test_interval_is_skewed_like_the_values() -> None:
    rng = Random(2)
    estimate = mean([[rng.expovariate(1.0)] for _ in range(40)])
    low, high = edges(estimate)
    assert high - estimate.value > estimate.value - low


@given(
    st.lists(st.integers(-20, 20), min_size=3, max_size=25).filter(lambda v: len(set(v)) > 2),
    st.integers(-5, 5),
    st.sampled_from([0.5, 2.0, 4.0]),
)
def test_mean_and_interval_are_equivariant_to_shift_and_scale(values: list[int], shift: int, scale: float) -> None:
    plain = mean([[float(v)] for v in values], resamples=50)
    moved = mean([[v * scale + shift] for v in values], resamples=50)
    for a, b in zip((plain.value, *edges(plain)), (moved.value, *edges(moved)), strict=True):
        assert isclose(a * scale + shift, b, abs_tol=1e-6)


def test_a_mean_of_two_distinct_values_is_a_scaled_rate() -> None:
    low, high = edges(mean([[-1.0 + 3.0 * (i < 7)] for i in range(20)]))
    plain = edges(rate([[i < 7] for i in range(20)]))
    assert isclose(low, -1 + 3 * plain[0])
    assert isclose(high, -1 + 3 * plain[1])


def test_identical_values_have_no_interval() -> None:
    estimate = mean([[2.0], [2.0]])
    assert (estimate.value, estimate.low, estimate.high) == (2.0, None, None)
    assert mean_of_means([estimate, estimate]) == Estimate(value=2.0, n=4)


def test_attempts_are_averaged_before_tasks_are_resampled() -> None:
    rng = Random(3)
    tasks = [[rng.random() for _ in range(4)] for _ in range(30)]
    assert mean(tasks) == mean([[fsum(task) / 4] for task in tasks])


def test_the_same_values_give_the_same_interval() -> None:
    values = [[Random(i).random()] for i in range(30)]
    assert mean(values) == mean(values)


def test_a_mean_of_means_adds_variances() -> None:
    estimate = mean_of_means([Estimate(value=1.0, low=0.7, high=1.6, n=5), Estimate(value=3.0, low=2.6, high=3.8, n=5)])
    assert estimate.value == 2.0
    assert isclose(estimate.low or 0, 2 - 0.25)
    assert isclose(estimate.high or 0, 2 + 0.5)


def test_scaled_maps_random_to_0_and_expert_to_1() -> None:
    estimate = Estimate(value=0.5, low=0.4, high=0.6, n=9).scaled(0.2, 0.8)
    assert isclose(estimate.value, 0.5)
    assert isclose(estimate.low or 0, 1 / 3)
    assert isclose(estimate.high or 0, 2 / 3)


# Several attempts


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n), st.integers(0, n))))
def test_pass_at_k_and_pass_all_equal_enumeration(numbers: tuple[int, int, int]) -> None:
    k, n, solved = numbers
    draws = list(combinations([i < solved for i in range(n)], k))
    assert isclose(pass_at(k, n, solved), sum(any(draw) for draw in draws) / len(draws))
    assert isclose(pass_all(k, n, solved), sum(all(draw) for draw in draws) / len(draws))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_pass_at_k_and_pass_all_are_unbiased(p: float) -> None:
    n, k = 6, 3
    chances = [comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    assert isclose(sum(w * pass_at(k, n, c) for c, w in enumerate(chances)), 1 - (1 - p) ** k)
    assert isclose(sum(w * pass_all(k, n, c) for c, w in enumerate(chances)), p**k)


def test_k_above_the_number_of_attempts_raises() -> None:
    with pytest.raises(BadValue, match="k must be from 1 to attempts"):
        pass_at(5, 4, 1)


# Pairs


@given(st.integers(0, 12), st.integers(0, 12))
def test_mcnemar_equals_a_binomial_test(wins: int, losses: int) -> None:
    n = wins + losses
    observed = abs(wins - losses)
    expected = sum(comb(n, i) for i in range(n + 1) if abs(2 * i - n) >= observed) / 2**n
    assert isclose(mcnemar(wins, losses), expected)


def test_mcnemar_of_known_cases() -> None:
    assert isclose(mcnemar(9, 1), 2 * 11 / 1024)
    assert mcnemar(0, 0) == 1.0


@given(st.lists(st.integers(-8, 8), min_size=1, max_size=9))
def test_sign_flips_equal_enumeration(values: list[int]) -> None:
    observed = abs(sum(values))
    totals = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=len(values))
    ]
    assert isclose(sign_flips([v / 8 for v in values]), sum(total >= observed for total in totals) / len(totals))


def test_sampled_sign_flips_agree_with_mcnemar() -> None:
    values = [1.0] * 28 + [-1.0] * 12
    assert abs(sign_flips(values) - mcnemar(28, 12)) < 0.005


def test_sign_flips_have_the_stated_false_positive_rate() -> None:
    rng = Random(5)
    rejected = sum(sign_flips([rng.gauss(0, 1) for _ in range(10)]) < 0.05 for _ in range(400))
    assert 8 <= rejected <= 32  # 20 expected


def test_holm_of_known_cases() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == [0.03, 0.06, 0.06, 0.02]
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_interval_of_equal_pairs_is_not_empty() -> None:
    low, high = edges(difference([0.0] * 20))
    assert -0.2 < low < 0 < high < 0.2
    low, high = edges(difference([1.0] * 5))
    assert low < 0.9
    assert high == 1.0


def test_interval_of_paired_differences_is_students_t_interval() -> None:
    values = [1.0] * 12 + [0.0] * 80 + [-1.0] * 8
    spread = (20 - 100 * 0.04**2) / 99
    low, high = edges(difference(values))
    assert isclose(low, 0.04 - student(99) * sqrt(spread / 100))
    assert isclose(high, 0.04 + student(99) * sqrt(spread / 100))

"""Test that the sampler applies each row's settings independently of the other rows."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from palestra.engines.base import Sampling
from palestra.engines.local.sampling import is_unfiltered, sample, sampling_tensors, settings_row, uniforms
from palestra.seeding import hash_seed

DRAWS = 20_000
LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -8.0])


def reference_distribution(logits: list[float], sampling: Sampling) -> list[float]:
    """Compute the sampling distribution of one row without vectorization."""
    if sampling.temperature == 0:
        best = max(range(len(logits)), key=logits.__getitem__)
        return [float(at == best) for at in range(len(logits))]
    weights = torch.tensor(logits, dtype=torch.float64).div(sampling.temperature).softmax(-1).tolist()
    order = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)
    if sampling.top_k:
        order = order[: sampling.top_k]
    total = sum(weights[at] for at in order)
    nucleus, mass = [], 0.0
    for at in order:
        if sampling.top_p == 1 or mass < sampling.top_p * total:
            nucleus.append(at)
            mass += weights[at]
    nucleus = [at for at in nucleus if weights[at] >= sampling.min_p * weights[order[0]]]
    total = sum(weights[at] for at in nucleus)
    return [weights[at] / total if at in nucleus else 0.0 for at in range(len(weights))]


def draw(rows: list[Sampling], chances: list[float], logits: torch.Tensor) -> tuple[list[int], list[float]]:
    by = None
    if not all(map(is_unfiltered, rows)):
        numbers = np.array([settings_row(row) for row in rows]).T
        by = sampling_tensors(numbers, torch.from_numpy(numbers), logits.shape[1])
    ids, logprobs = sample(logits, torch.tensor(chances, dtype=torch.float64), by)
    return ids.tolist(), logprobs.tolist()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.5),
        Sampling(temperature=2.0),
        Sampling(top_k=3),
        Sampling(top_p=0.8),
        Sampling(min_p=0.3),
        Sampling(temperature=1.5, top_k=6, top_p=0.9, min_p=0.1),
        Sampling(temperature=0.0, top_k=3),
        Sampling(top_k=1),
        Sampling(top_p=1e-6),
        Sampling(min_p=1.0),
        Sampling(top_k=100),
    ],
    ids=str,
)
def test_draws_follow_the_distribution(sampling: Sampling) -> None:
    rng = random.Random(0)
    logits = LOGITS.expand(DRAWS, -1)
    ids, logprobs = draw([sampling] * DRAWS, [rng.random() for _ in range(DRAWS)], logits)
    expected = reference_distribution(LOGITS.tolist(), sampling)
    raw = LOGITS.log_softmax(-1).tolist()
    assert all(abs(logprob - raw[token]) < 1e-5 for token, logprob in zip(ids, logprobs, strict=True))
    counts = [ids.count(token) for token in range(len(LOGITS))]
    assert all(count == 0 for count, share in zip(counts, expected, strict=True) if share == 0)
    chi = sum((count - DRAWS * p) ** 2 / (DRAWS * p) for count, p in zip(counts, expected, strict=True) if p > 0)
    assert chi < 24.3  # p = 0.001 at seven degrees of freedom; the random numbers are fixed


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 2, 5, 40]),
    top_p=st.sampled_from([0.05, 0.5, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.6]),
)


@example([(Sampling(temperature=0.3, top_p=0.05), 0.0, 0), (Sampling(temperature=0.3), 0.0, 883)])
@example([(Sampling(temperature=0.0, top_p=0.05), 0.0, 0), (Sampling(temperature=0.3), 0.0, 883)])
@given(st.lists(st.tuples(SAMPLINGS, st.floats(0, 0.999_999), st.integers(0, 1000)), min_size=1, max_size=6))
def test_rows_are_independent(rows: list[tuple[Sampling, float, int]]) -> None:
    logits = torch.stack([torch.randn(23, generator=torch.Generator().manual_seed(seed)) * 3 for *_, seed in rows])
    together = draw([row[0] for row in rows], [row[1] for row in rows], logits)
    for at, (sampling, uniform, _) in enumerate(rows):
        (alone,), (logprob,) = draw([sampling], [uniform], logits[at : at + 1])
        assert together[0][at] == alone
        assert together[1][at] == pytest.approx(logprob, abs=1e-6)
        assert reference_distribution(logits[at].tolist(), sampling)[alone] > 0


@given(st.integers(0, 10_000), st.floats(0, 0.999_999))
def test_inverse_transform(seed: int, uniform: float) -> None:
    logits = torch.randn((1, 50), generator=torch.Generator().manual_seed(seed))
    (token,), _ = draw([Sampling()], [uniform], logits)
    cumulative = logits.double().softmax(-1).cumsum(-1)[0]
    assert (cumulative[token - 1] if token else 0.0) <= uniform + 1e-6
    assert cumulative[token] >= uniform - 1e-6


def test_draws_at_the_ends_of_the_distribution() -> None:
    nearly_one = 1 - 2.0**-53
    logits = torch.tensor([[0.0, float("-inf"), 0.0, float("-inf")]])
    assert draw([Sampling()], [nearly_one], logits)[0] == [2]
    assert draw([Sampling(top_p=0.9)], [nearly_one], logits)[0] == [2]
    assert draw([Sampling()], [0.0], logits)[0] == [0]
    assert draw([Sampling()], [nearly_one], torch.zeros((1, 5)))[0] == [4]


def test_unlikely_tokens_of_a_large_vocabulary_keep_their_probability() -> None:
    size = 200_000
    logits = torch.zeros((1, size))
    logits[0, 0] = 20.0  # every other token has probability 2e-9, which a float32 sum would round away
    share = (size - 1) / (size - 1 + torch.tensor(20.0, dtype=torch.float64).exp().item())
    (token,), _ = draw([Sampling()], [1 - share / 2], logits)
    assert abs(token - size / 2) < 10


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_logits_give_nan_logprobs(bad: float) -> None:
    logits = torch.zeros((2, 4))
    logits[1, 2] = bad
    for sampling in (Sampling(), Sampling(temperature=0.0), Sampling(top_p=0.5)):
        ids, logprobs = draw([sampling] * 2, [0.5, 0.5], logits)
        assert logprobs[0] == pytest.approx(-1.386294, abs=1e-5)
        assert logprobs[1] != logprobs[1]
        assert 0 <= ids[1] < 4


def test_top_k_keeps_ties() -> None:
    logits = torch.zeros((1, 4))
    drawn = {draw([Sampling(top_k=2)], [at / 100], logits)[0][0] for at in range(100)}
    assert drawn == {0, 1, 2, 3}


def test_unfiltered_rows_do_not_depend_on_the_sampling_path() -> None:
    plain = [Sampling(), Sampling(max_tokens=3, seed=4, stop=("x",))]
    assert all(map(is_unfiltered, plain))
    assert not any(map(is_unfiltered, [Sampling(temperature=0.9), Sampling(top_k=3), Sampling(top_p=0.9)]))
    logits = LOGITS.repeat(3, 1)
    alone, _ = draw(plain, [0.3, 0.8], logits[:2])
    among, _ = draw([*plain, Sampling(top_k=2)], [0.3, 0.8, 0.5], logits)
    assert among[:2] == alone


def test_log_probs_are_raw_or_at_the_sampling_temperature_and_never_filtered() -> None:
    rows = [
        Sampling(temperature=0.5),
        Sampling(temperature=0.5, tempered_logprobs=True),
        Sampling(temperature=2.0, top_k=3, top_p=0.9, min_p=0.1, tempered_logprobs=True),
        Sampling(temperature=0.0, tempered_logprobs=True),
    ]
    ids, logprobs = draw(rows, [0.1] * 4, LOGITS.repeat(4, 1))
    expected = [(LOGITS / temperature).log_softmax(-1) for temperature in (1.0, 0.5, 2.0, 1.0)]
    assert logprobs == pytest.approx([float(row[token]) for row, token in zip(expected, ids, strict=True)], abs=1e-6)


@given(st.lists(st.tuples(st.integers(), st.integers(0, 10_000)), min_size=1, max_size=20))
def test_random_numbers_depend_on_seed_and_position_only(rows: list[tuple[int, int]]) -> None:
    seeds = np.array([hash_seed(seed) for seed, _ in rows])
    places = np.array([place for _, place in rows])
    together = uniforms(seeds, places)
    alone = [uniforms(seeds[at : at + 1], places[at : at + 1])[0] for at in range(len(rows))]
    assert together.tolist() == alone
    assert all(0 <= chance < 1 for chance in alone)
    assert len(set(alone)) == len(set(rows))


def test_random_numbers_are_uniform() -> None:
    for chances in (
        uniforms(np.full(DRAWS, hash_seed(7)), np.arange(DRAWS)),
        uniforms(np.array([hash_seed(seed) for seed in range(DRAWS)]), np.zeros(DRAWS, np.int64)),
    ):
        counts = np.bincount((chances * 50).astype(int), minlength=50)
        assert ((counts - DRAWS / 50) ** 2 / (DRAWS / 50)).sum() < 90  # p < 0.001; the seeds are fixed
        assert abs(np.corrcoef(chances[:-1], chances[1:])[0, 1]) < 0.03

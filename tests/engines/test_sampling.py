"""The sampler follows the settings of each row, independently of the other rows."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from palestra.engines.base import Sampling
from palestra.engines.local.sampling import hash_seed, is_unfiltered, sample, sampling_tensors, settings_row, uniforms

DRAWS = 20_000
LOGITS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -8.0])


def by_hand(logits: list[float], sampling: Sampling) -> list[float]:
    """The distribution one row is sampled from, said plainly."""
    if sampling.temperature == 0:
        best = max(range(len(logits)), key=logits.__getitem__)
        return [float(at == best) for at in range(len(logits))]
    weights = torch.tensor(logits, dtype=torch.float64).div(sampling.temperature).softmax(-1).tolist()
    order = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)
    if sampling.top_k:
        order = order[: sampling.top_k]
    total = sum(weights[at] for at in order)
    kept, mass = [], 0.0
    for at in order:
        if sampling.top_p == 1 or mass < sampling.top_p * total:
            kept.append(at)
            mass += weights[at]
    kept = [at for at in kept if weights[at] >= sampling.min_p * weights[order[0]]]
    total = sum(weights[at] for at in kept)
    return [weights[at] / total if at in kept else 0.0 for at in range(len(weights))]


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
    expected = by_hand(LOGITS.tolist(), sampling)
    raw = LOGITS.log_softmax(-1).tolist()
    assert all(abs(logprob - raw[token]) < 1e-5 for token, logprob in zip(ids, logprobs, strict=True))
    counts = [ids.count(token) for token in range(len(LOGITS))]
    assert all(count == 0 for count, share in zip(counts, expected, strict=True) if share == 0)
    chi = sum((count - DRAWS * p) ** 2 / (DRAWS * p) for count, p in zip(counts, expected, strict=True) if p > 0)
    assert chi < 24.3  # one in a thousand at seven degrees of freedom; the draws are fixed


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
def test_a_row_does_not_depend_on_the_others(rows: list[tuple[Sampling, float, int]]) -> None:
    logits = torch.stack([torch.randn(23, generator=torch.Generator().manual_seed(seed)) * 3 for *_, seed in rows])
    together = draw([row[0] for row in rows], [row[1] for row in rows], logits)
    for at, (sampling, uniform, _) in enumerate(rows):
        (alone,), (logprob,) = draw([sampling], [uniform], logits[at : at + 1])
        assert together[0][at] == alone
        assert together[1][at] == pytest.approx(logprob, abs=1e-6)
        assert by_hand(logits[at].tolist(), sampling)[alone] > 0


@given(st.integers(0, 10_000), st.floats(0, 0.999_999))
def test_inverse_transform(seed: int, uniform: float) -> None:
    logits = torch.randn((1, 50), generator=torch.Generator().manual_seed(seed))
    (token,), _ = draw([Sampling()], [uniform], logits)
    line = logits.double().softmax(-1).cumsum(-1)[0]
    assert (line[token - 1] if token else 0.0) <= uniform + 1e-6
    assert line[token] >= uniform - 1e-6


def test_the_last_token_can_be_drawn_and_what_has_no_weight_cannot() -> None:
    nearly_one = 1 - 2.0**-53
    logits = torch.tensor([[0.0, float("-inf"), 0.0, float("-inf")]])
    assert draw([Sampling()], [nearly_one], logits)[0] == [2]
    assert draw([Sampling(top_p=0.9)], [nearly_one], logits)[0] == [2]
    assert draw([Sampling()], [0.0], logits)[0] == [0]
    assert draw([Sampling()], [nearly_one], torch.zeros((1, 5)))[0] == [4]


def test_unlikely_tokens_of_a_large_vocabulary_keep_their_share() -> None:
    size = 200_000
    logits = torch.zeros((1, size))
    logits[0, 0] = 20.0  # beside it each other token weighs 2e-9, which a sum in float32 would lose
    share = (size - 1) / (size - 1 + torch.tensor(20.0, dtype=torch.float64).exp().item())
    (token,), _ = draw([Sampling()], [1 - share / 2], logits)
    assert abs(token - size / 2) < 10


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_show(bad: float) -> None:
    logits = torch.zeros((2, 4))
    logits[1, 2] = bad
    for sampling in (Sampling(), Sampling(temperature=0.0), Sampling(top_p=0.5)):
        ids, logprobs = draw([sampling] * 2, [0.5, 0.5], logits)
        assert logprobs[0] == pytest.approx(-1.386294, abs=1e-5)
        assert logprobs[1] != logprobs[1]
        assert 0 <= ids[1] < 4


def test_equals_stay_together_under_top_k() -> None:
    logits = torch.zeros((1, 4))
    drawn = {draw([Sampling(top_k=2)], [at / 100], logits)[0][0] for at in range(100)}
    assert drawn == {0, 1, 2, 3}


def test_plain_rows_sample_the_same_with_settings_and_without() -> None:
    plain = [Sampling(), Sampling(max_tokens=3, seed=4, stop=("x",))]
    assert all(map(is_unfiltered, plain))
    assert not any(map(is_unfiltered, [Sampling(temperature=0.9), Sampling(top_k=3), Sampling(top_p=0.9)]))
    logits = LOGITS.repeat(3, 1)
    alone, _ = draw(plain, [0.3, 0.8], logits[:2])
    among, _ = draw([*plain, Sampling(top_k=2)], [0.3, 0.8, 0.5], logits)
    assert among[:2] == alone


@given(st.lists(st.tuples(st.integers(), st.integers(0, 10_000)), min_size=1, max_size=20))
def test_chance_depends_on_the_seed_and_the_place_alone(rows: list[tuple[int, int]]) -> None:
    seeds = np.array([hash_seed(seed) for seed, _ in rows])
    places = np.array([place for _, place in rows])
    together = uniforms(seeds, places)
    alone = [uniforms(seeds[at : at + 1], places[at : at + 1])[0] for at in range(len(rows))]
    assert together.tolist() == alone
    assert all(0 <= chance < 1 for chance in alone)
    assert len(set(alone)) == len(set(rows))


def test_chance_is_even_along_a_reply_and_across_replies() -> None:
    for chances in (
        uniforms(np.full(DRAWS, hash_seed(7)), np.arange(DRAWS)),
        uniforms(np.array([hash_seed(seed) for seed in range(DRAWS)]), np.zeros(DRAWS, np.int64)),
    ):
        counts = np.bincount((chances * 50).astype(int), minlength=50)
        assert ((counts - DRAWS / 50) ** 2 / (DRAWS / 50)).sum() < 90  # one in several thousand at 49; it is fixed
        assert abs(np.corrcoef(chances[:-1], chances[1:])[0, 1]) < 0.03

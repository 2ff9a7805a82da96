"""Compare DAPO, Dr. GRPO, REINFORCE++-baseline, GiGPO and distillation with their definitions, on ragged batches."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from palestra.algorithms import (
    CISPO,
    DAPO,
    GRPO,
    GSPO,
    RLOO,
    Advantages,
    Distill,
    DrGRPO,
    Episode,
    GiGPO,
    ReinforcePPBaseline,
)
from palestra.errors import BadValue
from tests.algorithms.batches import close, episodes, units


def deviation(numbers: Sequence[float]) -> float:
    spread = stdev(numbers) if len(numbers) > 1 else 0.0
    assume(not 0 < spread < 1e-5)  # near the threshold below which a deviation counts as rounding
    return spread


def in_group(batch: Sequence[Episode], numbers: Sequence[float], i: int) -> list[float]:
    return [x for e, x in zip(batch, numbers, strict=True) if e.task == batch[i].task]


def standard(x: float, pool: Sequence[float], *, scale: bool = True) -> float:
    spread = deviation(pool)
    return 0.0 if not spread else (x - mean(pool)) / (spread if scale else 1.0)


@settings(max_examples=12)
@given(batch=episodes(groups=True), gamma=units)
def test_dr_grpo_and_the_algorithms_with_grpo_advantages(batch: list[Episode], gamma: float) -> None:
    totals = [sum(gamma**k * r for k, r in enumerate(e.rewards)) for e in batch]
    centered = [
        [standard(totals[i], in_group(batch, totals, i), scale=False)] * len(e.rewards) for i, e in enumerate(batch)
    ]
    assert close(DrGRPO(gamma=gamma).advantages(batch).advantages, centered, 1e-7)
    grpo = GRPO(gamma=gamma).advantages(batch)
    for kind in (GSPO, CISPO):
        assert kind(gamma=gamma).advantages(batch) == grpo
    flat = [deviation(in_group(batch, totals, i)) == 0 for i in range(len(batch))]
    assert grpo.excluded == flat
    assert RLOO(gamma=gamma).advantages(batch).excluded == flat
    assert GRPO(gamma=gamma, zero_variance="keep").advantages(batch).excluded is None


def test_excluded_episodes_give_no_signal() -> None:
    result = Advantages(advantages=[[1.0], [0.0, 0.0], [2.0]], excluded=[True, False, True])
    assert result.kept == [1]
    assert not result.signal


def penalty(tokens: int, length: int, buffer: int) -> float:
    """Compute DAPO's soft overlong penalty, equation (13)."""
    if tokens <= length - buffer:
        return 0.0
    if tokens <= length and buffer:
        return ((length - buffer) - tokens) / buffer
    return -1.0


@settings(max_examples=12)
@given(batch=episodes(groups=True), length=st.integers(1, 4), data=st.data())
def test_dapo(batch: list[Episode], length: int, data: st.DataObject) -> None:
    buffer = data.draw(st.integers(1, length))
    totals = [
        sum(r + penalty(n, length, buffer) for r, n in zip(e.rewards, e.reply_tokens or (), strict=True)) for e in batch
    ]
    wanted = [[standard(totals[i], in_group(batch, totals, i))] * len(e.rewards) for i, e in enumerate(batch)]
    result = DAPO(overlong_length=length, overlong_buffer=buffer).advantages(batch)
    assert close(result.advantages, wanted, 1e-6)
    flat = [deviation(in_group(batch, totals, i)) == 0 for i in range(len(batch))]
    assert result.excluded == [e.cut or constant for e, constant in zip(batch, flat, strict=True)]
    assert result.metrics["overlong"] == mean(e.cut for e in batch)
    kept = DAPO(mask_overlong=False, overlong_length=length, overlong_buffer=buffer).advantages(batch)
    assert kept.excluded == flat


def test_dapo_rejects_a_buffer_longer_than_the_length() -> None:
    with pytest.raises(BadValue, match="overlong_buffer must be at most overlong_length"):
        DAPO(overlong_buffer=5)


@settings(max_examples=12)
@given(batch=episodes(groups=True), gamma=units)
def test_reinforce_pp_baseline(batch: list[Episode], gamma: float) -> None:
    totals = [sum(gamma**k * r for k, r in enumerate(e.rewards)) for e in batch]
    varied = [deviation(in_group(batch, totals, i)) > 0 for i in range(len(batch))]
    centered = [totals[i] - mean(in_group(batch, totals, i)) for i in range(len(batch))]
    wanted = []
    for i, episode in enumerate(batch):
        pool = [
            centered[j]
            for j, e in enumerate(batch)
            if e.env_id == episode.env_id and varied[j]
            for _ in e.rewards  # every turn has the same weight
        ]
        wanted.append([standard(centered[i], pool) if varied[i] else 0.0] * len(episode.rewards))
    assert close(ReinforcePPBaseline(gamma=gamma).advantages(batch).advantages, wanted, 1e-6)


@settings(max_examples=12)
@given(batch=episodes(groups=True), gamma=units, weight=st.floats(0, 2), scale=st.booleans())
def test_gigpo(batch: list[Episode], gamma: float, weight: float, scale: bool) -> None:
    totals = [sum(e.rewards) for e in batch]
    pools: dict[tuple[object, str], list[float]] = {}
    returns = []
    for e in batch:
        n = len(e.rewards)
        returns.append([sum(gamma ** (k - t) * e.rewards[k] for k in range(t, n)) for t in range(n)])
        for observation, value in zip(e.observations or (), returns[-1], strict=True):
            pools.setdefault((e.task, observation), []).append(value)
    wanted, excluded = [], []
    for i, e in enumerate(batch):
        group = in_group(batch, totals, i)
        own = [pools[e.task, observation] for observation in e.observations or ()]
        wanted.append(
            [
                standard(totals[i], group, scale=scale) + weight * standard(value, pool, scale=scale)
                for value, pool in zip(returns[i], own, strict=True)
            ]
        )
        steps = weight > 0 and any(deviation(pool) > 0 for pool in own)
        excluded.append(deviation(group) == 0 and not steps)
    algorithm = GiGPO(gamma=gamma, step_weight=weight, normalize="std" if scale else "none")
    result = algorithm.advantages(batch)
    assert close(result.advantages, wanted, 1e-6)
    assert result.excluded == excluded


def test_gigpo_compares_turns_only_within_a_task() -> None:
    one = Episode(rewards=[1.0], seed=1, observations=["x"])
    other = Episode(rewards=[0.0], seed=2, observations=["x"])
    assert GiGPO().advantages([one, other]).advantages == [[0.0], [0.0]]


@settings(max_examples=12)
@given(batch=episodes(), coefficient=st.floats(0, 2))
def test_distillation(batch: list[Episode], coefficient: float) -> None:
    returns = [[sum(e.rewards[t:]) for t in range(len(e.rewards))] for e in batch]
    wanted = []
    for i, e in enumerate(batch):
        pool = [x for row, other in zip(returns, batch, strict=True) if other.env_id == e.env_id for x in row]
        tokens = zip(e.token_turns or (), e.teacher_kl or (), strict=True)
        wanted.append([coefficient * standard(returns[i][turn], pool) - kl for turn, kl in tokens])
    result = Distill(teacher="x", reward_coef=coefficient).advantages(batch)
    assert close(result.advantages, wanted, 1e-6)
    with pytest.raises(BadValue, match="--teacher"):
        _ = Distill().teacher

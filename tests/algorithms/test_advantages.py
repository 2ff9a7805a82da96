"""Compare every advantage estimator with its definition, implemented as plain loops independent of the tested code."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from statistics import mean, stdev
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from palestra.algorithms import (
    GRPO,
    PPO,
    RLOO,
    Episode,
    ReBN,
    Reinforce,
    ReinforcePP,
    TokenPPO,
    explained_variance,
    returns_to_go,
    token_gae,
    turn_gae,
)
from tests.algorithms.batches import close, episodes, numbers, policy_gradient, units

Rows = list[list[float]]


def defined_returns(batch: Sequence[Episode], gamma: float, beta: float) -> Rows:
    """Compute G_t = sum_{k>=t} gamma^{k-t} (r_k - beta KL_k) term by term."""
    computed = []
    for episode in batch:
        assert episode.kl is not None
        n = len(episode.rewards)
        computed.append(
            [sum(gamma ** (k - t) * (episode.rewards[k] - beta * episode.kl[k]) for k in range(t, n)) for t in range(n)]
        )
    return computed


def defined_standard(rows: Rows, keys: Sequence[Any], scale: bool = True) -> Rows:
    computed = []
    for row, key in zip(rows, keys, strict=True):
        pool = [x for other, its in zip(rows, keys, strict=True) if its == key for x in other]
        m, s = mean(pool), stdev(pool) if len(pool) > 1 else 0.0
        computed.append([(x - m) / (s if scale else 1.0) if s > 1e-7 else 0.0 for x in row])
    return computed


def clear_cut(rows: Rows, keys: Sequence[Any]) -> bool:
    """Return whether no pool has a standard deviation near the rounding threshold, where results may differ."""
    for key in set(keys):
        pool = [x for row, its in zip(rows, keys, strict=True) if its == key for x in row]
        if len(pool) > 1 and 0 < stdev(pool) < 1e-5:
            return False
    return True


def envs(batch: Sequence[Episode]) -> list[str]:
    return [episode.env_id for episode in batch]


@given(st.lists(numbers, max_size=8), units)
def test_return_to_go(rewards: list[float], gamma: float) -> None:
    wanted = [sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))]
    assert close([returns_to_go(rewards, gamma)], [wanted])


@given(episodes(), units, units)
def test_reinforce(batch: list[Episode], gamma: float, beta: float) -> None:
    returns = defined_returns(batch, gamma, beta)
    assert close(Reinforce(gamma=gamma, kl=beta, kl_in="reward").advantages(batch).advantages, returns)
    for per_env, keys in ((True, envs(batch)), (False, [0] * len(batch))):
        if clear_cut(returns, keys):
            computed = Reinforce(
                gamma=gamma, kl=beta, kl_in="reward", baseline=True, normalize_per_env=per_env
            ).advantages(batch)
            assert close(computed.advantages, defined_standard(returns, keys, scale=False), 1e-7)


@given(episodes(), units, units)
def test_rebn_and_reinforce_pp(batch: list[Episode], gamma: float, beta: float) -> None:
    returns = defined_returns(batch, gamma, beta)
    for per_env, keys in ((True, envs(batch)), (False, [0] * len(batch))):
        assume(clear_cut(returns, keys))
        wanted = defined_standard(returns, keys)
        for kind in (ReBN, ReinforcePP):
            computed = kind(gamma=gamma, kl=beta, kl_in="reward", normalize_per_env=per_env).advantages(batch)
            assert close(computed.advantages, wanted, 1e-6)
            assert computed.returns is None


@given(episodes(envs=3))
def test_rebn_has_mean_zero_and_deviation_one_in_every_environment(batch: list[Episode]) -> None:
    assume(clear_cut(defined_returns(batch, 1.0, 0.0), envs(batch)))
    result = ReBN().advantages(batch)
    flat = 0
    for env_id in set(envs(batch)):
        pool = [a for row, e in zip(result.advantages, batch, strict=True) if e.env_id == env_id for a in row]
        flat += not any(pool)
        assert abs(mean(pool)) < 1e-6
        if any(pool):
            assert stdev(pool) == pytest.approx(1, abs=1e-6)
    assert result.metrics["zero_variance"] == pytest.approx(flat / len(set(envs(batch))))


@given(episodes(envs=2), units)
def test_rebn_turn_by_turn(batch: list[Episode], gamma: float) -> None:
    returns = defined_returns(batch, gamma, 0.0)
    apart = [[value] for row in returns for value in row]
    for per_env in (True, False):
        names = envs(batch) if per_env else [""] * len(batch)
        keys = [(name, turn) for name, row in zip(names, returns, strict=True) for turn in range(len(row))]
        assume(clear_cut(apart, keys))
        computed = ReBN(gamma=gamma, normalize_per_env=per_env, normalize_per_turn=True).advantages(batch).advantages
        assert [len(row) for row in computed] == [len(row) for row in returns]
        assert close([[a] for row in computed for a in row], defined_standard(apart, keys), 1e-6)


@given(episodes(groups=True), units, units)
def test_grpo_and_rloo(batch: list[Episode], gamma: float, beta: float) -> None:
    totals = [[row[0]] for row in defined_returns(batch, gamma, beta)]
    groups = [(e.env_id, e.group) for e in batch]
    assume(clear_cut(totals, groups))
    lengths = [len(e.rewards) for e in batch]
    for normalize in ("std", "none"):
        wanted = defined_standard(totals, groups, scale=normalize == "std")
        computed = (
            policy_gradient("grpo", normalize=normalize, gamma=gamma, kl=beta, kl_in="reward")
            .advantages(batch)
            .advantages
        )
        assert close(computed, [row * n for row, n in zip(wanted, lengths, strict=True)], 1e-6)
    wanted = []
    for i, own in enumerate(totals):
        others = [totals[j][0] for j in range(len(batch)) if j != i and groups[j] == groups[i]]
        wanted.append([own[0] - sum(others) / len(others)] * lengths[i])
    assert close(RLOO(gamma=gamma, kl=beta, kl_in="reward").advantages(batch).advantages, wanted, 1e-7)


@given(episodes(groups=True))
def test_group_advantages_are_centered(batch: list[Episode]) -> None:
    for algorithm in (GRPO(), GRPO(normalize="none"), RLOO()):
        advantages = algorithm.advantages(batch).advantages
        for group in {e.group for e in batch}:
            assert abs(sum(row[0] for row, e in zip(advantages, batch, strict=True) if e.group == group)) < 1e-6
        assert all(len(set(row)) == 1 for row in advantages), "every turn in an episode has the same advantage"


def defined_gae(rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float, end: float) -> list[float]:
    """Compute A_t = (1 - lam) sum_n lam^n (n-step advantage), the definition from which GAE is derived."""
    n = len(rewards)
    after = [*values, end]

    def steps(t: int, count: int) -> float:
        return sum(gamma**k * rewards[t + k] for k in range(count)) + gamma**count * after[t + count] - values[t]

    return [
        (1 - lam) * sum(lam ** (c - 1) * steps(t, c) for c in range(1, n - t)) + lam ** (n - t - 1) * steps(t, n - t)
        for t in range(n)
    ]


@given(episodes(), units, units, units)
def test_ppo(batch: list[Episode], gamma: float, lam: float, beta: float) -> None:
    result = PPO(gamma=gamma, lam=lam, kl=beta, kl_in="reward", whiten=False).advantages(batch)
    wanted = []
    for episode in batch:
        assert episode.values is not None
        assert episode.kl is not None
        rewards = [r - beta * kl for r, kl in zip(episode.rewards, episode.kl, strict=True)]
        end = episode.last_value if episode.truncated else 0.0
        wanted.append(defined_gae(rewards, episode.values, gamma, lam, end))
    assert close(result.advantages, wanted, 1e-7)
    values = [e.values or [] for e in batch]
    targets = [
        [a + v for a, v in zip(row, row_values, strict=True)] for row, row_values in zip(wanted, values, strict=True)
    ]
    assert result.returns is not None
    assert close(result.returns, targets, 1e-7)
    for per_env, keys in ((True, envs(batch)), (False, [0] * len(batch))):
        if clear_cut(wanted, keys):
            normal = PPO(gamma=gamma, lam=lam, kl=beta, kl_in="reward", normalize_per_env=per_env).advantages(batch)
            assert close(normal.advantages, defined_standard(wanted, keys), 1e-5)
            assert normal.returns == result.returns, "the critic's targets must not be normalized"


@given(episodes(), units)
def test_gae_at_lam_0_and_1(batch: list[Episode], gamma: float) -> None:
    """Check that GAE is the return minus the value for lam = 1, and the one-step advantage for lam = 0."""
    for episode in batch:
        assert episode.values is not None
        values, rewards = episode.values, episode.rewards
        whole = turn_gae(rewards, values, gamma=gamma, lam=1)
        assert close([[a + v for a, v in zip(whole, values, strict=True)]], [returns_to_go(rewards, gamma)], 1e-7)
        one = turn_gae(rewards, values, gamma=gamma, lam=0, last_value=5.0)
        ahead = [*values[1:], 5.0]
        steps = [r + gamma * v2 - v1 for r, v1, v2 in zip(rewards, values, ahead, strict=True)]
        assert close([one], [steps], 1e-7)


@given(episodes(), units, units)
def test_ppo_over_tokens(batch: list[Episode], gamma: float, lam: float) -> None:
    """Compare with A_i = sum_{j>=i} (product of g_k l_k for k from i to j - 1) d_j; g = l = 1 within a turn."""
    result = TokenPPO(gamma=gamma, lam=lam, whiten=False).advantages(batch)
    wanted, targets = [], []
    for episode in batch:
        turns, values = episode.token_turns, episode.token_values
        assert turns is not None
        assert values is not None
        n = len(turns)
        turn_ends = [i == n - 1 or turns[i + 1] != turns[i] for i in range(n)]
        discounts = [gamma if end else 1.0 for end in turn_ends]
        future = [*values[1:], episode.last_value if episode.truncated else 0.0]
        rewards = [episode.rewards[turn] if end else 0.0 for turn, end in zip(turns, turn_ends, strict=True)]
        deltas = [r + g * v2 - v1 for r, g, v1, v2 in zip(rewards, discounts, values, future, strict=True)]
        row = []
        for i in range(n):
            total, factor = 0.0, 1.0
            for j in range(i, n):
                total += factor * deltas[j]
                factor *= discounts[j] * (lam if turn_ends[j] else 1.0)
            row.append(total)
        wanted.append(row)
        targets.append([a + v for a, v in zip(row, values, strict=True)])
    assert close(result.advantages, wanted, 1e-7)
    assert result.returns is not None
    assert close(result.returns, targets, 1e-7)


def test_every_token_of_a_long_reply_gets_the_credit_of_its_reward() -> None:
    reply = Episode(rewards=[1.0], token_turns=[0] * 500, token_values=[0.0] * 500)
    result = TokenPPO(whiten=False).advantages([reply])
    assert result.advantages == [[1.0] * 500]
    later = Episode(rewards=[0.0, 1.0], token_turns=[0] * 300 + [1] * 200, token_values=[0.0] * 500)
    assert TokenPPO(whiten=False, lam=0.5).advantages([later]).advantages == [[0.5] * 300 + [1.0] * 200]


@given(episodes(), units, units, st.data())
def test_token_gae_skips_tokens_that_were_not_sampled(
    batch: list[Episode], gamma: float, lam: float, data: st.DataObject
) -> None:
    """Check that observation tokens between sampled tokens have no effect, whatever their values are."""
    for episode in batch[:2]:
        values, turns = list(episode.token_values or ()), list(episode.token_turns or ())
        rewards = data.draw(st.lists(numbers, min_size=len(values), max_size=len(values)))
        gaps = data.draw(st.lists(st.integers(0, 2), min_size=len(values) + 1, max_size=len(values) + 1))
        for with_turns in (True, False):
            bare = token_gae(
                rewards,
                values,
                [True] * len(values),
                gamma=gamma,
                lam=lam,
                last_value=3.0,
                turns=turns if with_turns else None,
            )
            if not with_turns:
                assert close([bare], [turn_gae(rewards, values, gamma=gamma, lam=lam, last_value=3.0)])
            wide: list[tuple[float, float, bool, int, float]] = []
            for i, gap in enumerate(gaps):
                wide += [(nan, nan, False, 99, 0.0)] * gap
                if i < len(values):
                    wide.append((rewards[i], values[i], True, turns[i], bare[i]))
            r, v, mask, t, wanted = zip(*wide, strict=True)
            computed = token_gae(r, v, mask, gamma=gamma, lam=lam, last_value=3.0, turns=t if with_turns else None)
            assert computed == list(wanted)


@given(episodes())
def test_explained_variance(batch: list[Episode]) -> None:
    returns = [list(e.rewards) for e in batch]
    flat = [x for row in returns for x in row]
    assume(len(flat) > 1)
    assume(stdev(flat) > 1e-3)
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(returns, [[4.0] * len(row) for row in returns]) == pytest.approx(0, abs=1e-6)
    values = [list(e.values or ()) for e in batch]
    errors = [a - b for x, y in zip(returns, values, strict=True) for a, b in zip(x, y, strict=True)]
    wanted = 1 - stdev(errors) ** 2 / stdev(flat) ** 2
    assert explained_variance(returns, values) == pytest.approx(wanted, rel=1e-6, abs=1e-6)

"""Test properties of all advantage estimators, and the validation of episodes and algorithm options."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from math import isfinite, nan, sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.algorithms import (
    GRPO,
    PPO,
    RLOO,
    Advantages,
    Episode,
    PolicyGradient,
    ReBN,
    Reinforce,
    TokenPPO,
    make_algorithm,
    options_of,
    to_tokens,
    to_turns,
)
from palestra.errors import BadValue
from tests.algorithms.batches import POLICY_GRADIENTS, episodes, policy_gradient, trajectory

CAUSAL = [
    Reinforce(gamma=0.9),
    PPO(gamma=0.9, whiten=False),
    TokenPPO(gamma=0.9, whiten=False),
    Reinforce(gamma=0.9, kl=0.5, kl_in="reward"),
]


@pytest.mark.parametrize("algorithm", CAUSAL, ids=lambda a: f"{a.name}-{a.config.kl}")
@given(batch=episodes(), data=st.data())
def test_a_reward_affects_only_its_turn_and_earlier_ones(
    algorithm: PolicyGradient[Any], batch: list[Episode], data: st.DataObject
) -> None:
    which = data.draw(st.integers(0, len(batch) - 1))
    episode = batch[which]
    turn = data.draw(st.integers(0, len(episode.rewards) - 1))
    rewards = list(episode.rewards)
    rewards[turn] += 1.0
    changed = [*batch[:which], replace(episode, rewards=rewards), *batch[which + 1 :]]
    before, after = algorithm.advantages(batch).advantages, algorithm.advantages(changed).advantages
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        owners = episode.token_turns if algorithm.level == "token" else range(len(rewards))
        reached = [j for j, (x, y) in enumerate(zip(old, new, strict=True)) if abs(x - y) > 1e-9]
        if i != which:
            assert reached == []
        else:
            assert owners is not None
            assert reached == [j for j, owner in enumerate(owners) if owner <= turn]
            assert all(new[j] > old[j] for j in reached)


@pytest.mark.parametrize("last", [2.0, -3.0])
def test_only_truncated_episodes_bootstrap(last: float) -> None:
    ended = Episode(rewards=[0, 1], values=[0.5, 0.25], last_value=last)
    cut = replace(ended, truncated=True)
    plain = PPO(gamma=0.5, lam=1.0, whiten=False)
    assert plain.advantages([ended]).advantages == [[0.5 - 0.5, 1 - 0.25]]
    assert plain.advantages([cut]).advantages == [[0.5 + 0.25 * last - 0.5, 1 + 0.5 * last - 0.25]]


@pytest.mark.parametrize("name", POLICY_GRADIENTS)
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1 + 0.2, 1e9 / 3])
def test_a_batch_without_variance_has_zero_advantages_and_is_reported(name: str, reward: float) -> None:
    kl = [0.25]
    one = Episode(
        rewards=[reward],
        seed=1,
        env_id="a",
        kl=kl,
        values=[0.1],
        token_turns=[0, 0],
        token_values=[reward, reward],
        teacher_kl=[0.0, 0.0],
        observations=["x"],
    )
    result = policy_gradient(name).advantages([one, one, one])
    if name == "reinforce" and reward:
        assert result.signal, "without a baseline, equal nonzero rewards are a learning signal"
        result = Reinforce(baseline=True).advantages([one, one, one])
    assert result.advantages == [[0.0] * len(row) for row in result.advantages]
    assert not result.signal
    if result.metrics:
        assert result.metrics["zero_variance"] == 1.0


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_rounding_errors_are_not_variance(scale: float) -> None:
    batch = [Episode(rewards=[scale * x], seed=0) for x in (0.3, 0.1 + 0.2, 0.3)]
    assert batch[0].rewards != batch[1].rewards
    for algorithm in (ReBN(), GRPO(), GRPO(normalize="none"), RLOO(), Reinforce(baseline=True)):
        assert not algorithm.advantages(batch).signal


def test_small_rewards_are_normalized() -> None:
    batch = [Episode(rewards=[x], seed=0) for x in (0.0, 1e-6)]
    assert GRPO().advantages(batch).advantages == [[pytest.approx(-sqrt(0.5))], [pytest.approx(sqrt(0.5))]]


@pytest.mark.parametrize("name", POLICY_GRADIENTS)
def test_an_empty_batch_has_no_advantages(name: str) -> None:
    result = policy_gradient(name).advantages([])
    assert result.advantages == []
    assert not result.signal


@given(batch=episodes(groups=True))
def test_advantages_are_finite_and_have_the_shape_of_the_batch(batch: list[Episode]) -> None:
    for name in POLICY_GRADIENTS:
        algorithm = policy_gradient(name)
        result = algorithm.advantages(batch)
        wanted = [len((e.token_turns or ()) if algorithm.level == "token" else e.rewards) for e in batch]
        assert [len(row) for row in result.advantages] == wanted, name
        assert all(isfinite(a) for row in result.advantages for a in row), name
        assert (result.returns is not None) == algorithm.needs_critic, name
        assert result == algorithm.advantages(batch), name


@pytest.mark.parametrize("kind", [GRPO, RLOO])
def test_groups_of_one(kind: Any) -> None:
    pair = [Episode(rewards=[0.0], seed=7), Episode(rewards=[1.0, 0.0], seed=7)]
    single = Episode(rewards=[5.0], group=1, seed=8, env_id="game:Sudoku-v0")
    with pytest.raises(BadValue, match=r"Sudoku-v0 \(group 1, seed 8\) is the only episode.*singleton='zero'"):
        kind(singleton="error").advantages([*pair, single])
    result = kind(singleton="zero").advantages([*pair, single])
    assert result.advantages[2] == [0.0]
    assert result.advantages[:2] == kind().advantages(pair).advantages
    assert result.metrics["singleton"] == 0.5
    assert kind.needs_groups


def test_groups_with_equal_numbers_but_different_seeds_are_not_merged() -> None:
    batch = [Episode(rewards=[r], group=0, seed=s) for s, r in ((1, 0.0), (2, 10.0), (1, 1.0), (2, 11.0))]
    assert RLOO().advantages(batch).advantages == [[-1.0], [-1.0], [1.0], [1.0]]


def test_numbers_of_turns_and_tokens() -> None:
    index = [-1, 0, 0, -1, 1, -1]
    assert to_tokens([2.0, -3.0], index) == [0, 2, 2, 0, -3, 0]
    assert to_turns([nan, 1, 2, nan, 4, nan], index, 3) == [3, 4, 0]
    with pytest.raises(BadValue, match="turn 1, but the episode has 1 turns"):
        to_tokens([2.0], index)


def test_an_episode_of_a_trajectory() -> None:
    played = trajectory([0.0, 1.0], seed=5, truncated=True, success=False)
    episode = Episode.from_trajectory(played, values=[0.1, 0.2], last_value=0.3, kl=[0.0, 0.5], token_values=[0.0] * 6)
    assert (episode.rewards, episode.seed, episode.group, episode.truncated) == ([0.0, 1.0], 5, 5, True)
    assert episode.token_turns == [0, 0, 0, 1, 1, 1]
    assert not Episode.from_trajectory(trajectory([1.0])).truncated
    with pytest.raises(BadValue, match=r"failed at the engine boundary \(EngineFailed\).*exclude failed traject"):
        Episode.from_trajectory(trajectory([0.0], failed=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": []}, "has no turns"),
        ({"rewards": [1.0, nan]}, r"rewards\[1\] is nan"),
        ({"values": [1.0]}, "values has 1 numbers, expected 2"),
        ({"kl": [1.0, 2.0, 3.0]}, "kl has 3"),
        ({"last_value": float("inf")}, "last_value"),
        ({"token_turns": [0, 0]}, "at least one token each"),
        ({"token_turns": [1, 0]}, "in order"),
        ({"token_turns": [0, 1], "token_values": [0.0]}, "token_values has 1"),
    ],
)
def test_inconsistent_episodes_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        Episode(**{"rewards": [0.0, 1.0], **changes})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rebm", {}, "no algorithm named 'rebm'. Did you mean rebn"),
        ("reinforce++", {}, "Did you mean reinforce_pp"),
        ("GRPO", {}, "Did you mean grpo"),
        ("zzz", {}, "Available: reinforce, rebn, grpo"),
        ("rebn", {"gama": 0.9}, "rebn has no option 'gama'. Did you mean gamma"),
        ("grpo", {"lam": 0.9}, "grpo has no option 'lam'"),
        ("rebn", {"gamma": 1.5}, r"gamma must be in \[0, 1\], got 1.5"),
        ("ppo", {"lam": nan}, "lam must be in"),
        ("rebn", {"kl": -1.0}, "kl must be at least 0"),
        ("grpo", {"normalize": "var"}, "normalize must be one of std, none"),
        ("rloo", {"singleton": "drop"}, "singleton must be one of"),
    ],
)
def test_make_algorithm_rejects_invalid_options(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        make_algorithm(name, **options)


@pytest.mark.parametrize(
    ("rewards", "gamma"),
    [
        ([[0.0, 0.0, 1.0], [0.0, 0.0]], 0.9),  # only success is rewarded
        ([[0.5, 0.5, 0.0], [1.0, 0.0]], 0.3),  # every reward precedes the last turn
        ([[0.5, -0.1, 0.5], [-0.1, 0.0]], 0.6),  # penalties are not counted
        ([[0.0, 0.0]], 0.9),
    ],
)
def test_the_discount_of_a_batch_depends_on_how_early_its_rewards_are_paid(
    rewards: list[list[float]], gamma: float
) -> None:
    batch = [Episode(rewards=row, group=i) for i, row in enumerate(rewards)]
    dense = policy_gradient("reinforce", gamma=0.9, gamma_dense=0.3)
    fixed = policy_gradient("reinforce", gamma=gamma, gamma_dense=1.0)
    assert dense.config.discount_of(batch) == pytest.approx(gamma)
    for computed, expected in zip(dense.advantages(batch).advantages, fixed.advantages(batch).advantages, strict=True):
        assert computed == pytest.approx(expected)
    assert fixed.config.discount_of(batch) == gamma  # a higher value for dense rewards has no effect


@pytest.mark.parametrize("name", POLICY_GRADIENTS)
def test_make_algorithm(name: str) -> None:
    algorithm = make_algorithm(name, gamma=0.5)
    assert (algorithm.name, algorithm.config.gamma) == (name, 0.5)
    assert type(algorithm).__doc__
    assert set(options_of(name)) == {f.name for f in fields(algorithm.config)} >= {"gamma", "kl"}
    assert not algorithm.needs_reference
    assert make_algorithm(name, kl=0.1).needs_reference


@pytest.mark.parametrize("name", POLICY_GRADIENTS)
def test_missing_inputs_are_named_in_the_error(name: str) -> None:
    bare = [Episode(rewards=[0.0], seed=0), Episode(rewards=[1.0], seed=0)]
    with pytest.raises(BadValue, match="`kl` is required"):
        policy_gradient(name, kl=0.1, kl_in="reward").advantages(
            [replace(e, values=[0.0], token_turns=[0], token_values=[0.0]) for e in bare]
        )
    if policy_gradient(name).needs_critic or name in ("gigpo", "distill"):
        with pytest.raises(BadValue, match="needs `((token_)?values|observations|teacher_kl)`"):
            policy_gradient(name).advantages(bare)
    else:
        assert isinstance(policy_gradient(name).advantages(bare), Advantages)


def test_torch_is_not_imported() -> None:
    code = "import sys, palestra.algorithms; print('torch' in sys.modules, 'numpy' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False", "False"]

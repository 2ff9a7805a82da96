"""Test dynamic sampling, oversampling with early stop, and reward and advantage hooks in whole runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.agents import RandomAgent
from palestra.algorithms import Advantages, Episode, register_reward_hook
from palestra.algorithms.hooks import REWARD_HOOKS, with_hook_advantages, with_hook_rewards
from palestra.errors import BadValue
from palestra.rollout import Task, read
from palestra.rollout.collect import collect_groups
from palestra.rollout.types import Trajectory
from palestra.training import train
from palestra.training.recipe import from_mapping
from palestra.training.run import TrainingRun
from tests.algorithms.batches import trajectory

HOOK = "tests.training.test_group_sampling:every_second_task"


def every_second_task(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """Return rewards that differ within a group only if the seed of its task is even."""
    return [[float(t.member * (t.seed % 2 == 0))] * len(t.turns) for t in trajectories]


def doubled(episodes: Sequence[Episode], advantages: Advantages) -> Advantages:
    assert len(episodes) == len(advantages.advantages)
    return replace(advantages, advantages=[[2 * a for a in row] for row in advantages.advantages])


def run(out: Path, **settings: Any) -> TrainingRun:
    small = {"episodes": 6, "group_size": 2, "max_tokens": 2, "horizon": "1", "eval_episodes": 1, "eval_every": 0}
    fixed = {"env": "game:GuessTheNumber-v0-easy", "model": "default:0.1M", "out": str(out), "threads": 1}
    return train(from_mapping({**fixed, **small, "warm_start": 0, "algorithm": "grpo", "save_every": 1, **settings}))


def test_dynamic_sampling_replaces_groups_without_variance_and_resumes(tmp_path: Path) -> None:
    options = {"dynamic_sampling": 4, "reward_hook": HOOK, "advantage_hook": f"{__name__}:doubled"}
    whole = run(tmp_path / "whole", steps=3, **options)
    for row in whole.rows[1:]:
        assert row["groups_kept"] == 3
        assert 5 <= row["groups_played"] <= 6  # seeds are consecutive
        assert row["zero_variance"] == 0
        assert row["signal"] == 1
    seeds = [t.seed for step in range(3) for t in read(whole.folder / "trajectories" / f"step-{step:06d}.jsonl.gz")]
    assert sorted(set(seeds)) == list(range(min(seeds), min(seeds) + len(seeds) // 2)), "no task is skipped or repeated"
    run(tmp_path / "cut", steps=2, **options)
    resumed = run(tmp_path / "cut", steps=3, **options)
    for name in ("groups_played", "distinct_tasks"):
        assert [row[name] for row in resumed.rows[1:]] == [row[name] for row in whole.rows[1:]]


def test_asynchronous_dynamic_sampling_discards_groups_without_variance(tmp_path: Path) -> None:
    options = {"asynchronous": True, "staleness": 1, "concurrency": 8, "dynamic_sampling": 4, "reward_hook": HOOK}
    done = run(tmp_path / "run", steps=2, **options)
    for row in done.rows[1:]:
        assert row["groups_kept"] == 3
        assert row["zero_variance"] == 0
    episodes = [t for step in range(2) for t in read(done.folder / "trajectories" / f"step-{step:06d}.jsonl.gz")]
    assert sum(row["groups_played"] for row in done.rows[1:]) == len(episodes) / 2
    assert len({(t.seed, t.member) for t in episodes}) == len(episodes)


def test_oversampling_cancels_the_slowest_groups(tmp_path: Path) -> None:
    name = "test:SlowGuess-v0"
    if name not in palestra.list_envs():
        palestra.register(name, "tests.training.slow_env:SlowGuess")
    kwargs = {"late": 1, "until": str(tmp_path / "never")}  # the episodes with seed 1 do not end
    tasks = [Task(env_id=name, seed=g, kwargs=kwargs, group=g, member=m) for g in range(4) for m in range(2)]
    result = asyncio.run(collect_groups(RandomAgent(), tasks, groups=3, concurrency=8))
    assert [(t.group, t.member) for t in result.trajectories] == [(g, m) for g in (0, 2, 3) for m in (0, 1)]
    assert result.metrics["episodes"] == 6


def test_hooks_change_rewards_and_advantages() -> None:
    batch = [trajectory([1.0, 1.0], seed=2, member=3), trajectory([1.0], seed=1, member=3)]
    assert [t.rewards for t in with_hook_rewards(HOOK, batch)] == [[3.0, 3.0], [0.0]]
    assert with_hook_rewards("", batch) == batch
    register_reward_hook("test_hook", every_second_task)
    try:
        assert with_hook_rewards("test_hook", batch) == with_hook_rewards(HOOK, batch)
    finally:
        del REWARD_HOOKS.registered["test_hook"]
    episodes = [Episode.from_trajectory(t) for t in batch]
    advantages = Advantages(advantages=[[1.0, 2.0], [3.0]])
    assert with_hook_advantages(f"{__name__}:doubled", episodes, advantages).advantages == [[2.0, 4.0], [6.0]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "rebn", "group_size": 1, "dynamic_sampling": 1}, "group_size must be at least 2"),
        ({"algorithm": "agentevol", "oversampling": 2.0}, "agentevol does not support"),
        ({"asynchronous": True, "oversampling": 1.5}, "remove --oversampling"),
        ({"algorithm": "distill"}, "--teacher"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        from_mapping({"env": "game:GuessTheNumber-v0-easy", "algorithm": "grpo", **settings})


def test_hooks_with_results_of_another_shape_are_refused() -> None:
    batch = [trajectory([1.0, 1.0])]
    with pytest.raises(BadValue, match="no attribute 'missing'"):
        with_hook_rewards(f"{__name__}:missing", batch)
    with pytest.raises(BadValue, match="no reward hook named 'unknown'"):
        with_hook_rewards("unknown", batch)
    with pytest.raises(BadValue, match="must return Advantages"):
        with_hook_advantages("builtins:print", [Episode(rewards=[0.0])], Advantages(advantages=[[1.0]]))

"""Test that asynchronous training bounds staleness, neither loses nor repeats episodes, and keeps groups complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import palestra
from palestra.rollout import read
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training import async_trainer, train
from palestra.training.learner import Learner
from palestra.training.recipe import from_mapping
from palestra.training.staleness_buffer import StalenessBuffer
from palestra.training.step import reinforcement_step

ENV = "test:SlowGuess-v0"


@pytest.fixture(autouse=True)
def _slow_env() -> None:
    if ENV not in palestra.list_envs():
        palestra.register(ENV, "tests.training.slow_env:SlowGuess")


def _run(folder: Path, model: str, **settings: Any) -> list[dict[str, Any]]:
    config = from_mapping(
        {
            "env": ENV,
            "model": model,
            "out": str(folder),
            "steps": 4,
            "episodes": 16,
            "concurrency": 40,
            "max_tokens": 8,
            "eval_every": 0,
            "eval_episodes": 1,
            "asynchronous": True,
            "save_every": 2,
            "threads": 1,
            **settings,
        }
    )
    return [row for row in train(config).rows if row["step"] >= 0]


def _learned_from(folder: Path, step: int) -> list[Trajectory]:
    return list(read(folder / "trajectories" / f"step-{step:06d}.jsonl.gz"))


@pytest.mark.parametrize(("staleness", "concurrency"), [(0, 40), (1, 7), (3, 400)], ids=lambda number: str(number))
def test_no_sample_is_older_than_allowed_and_each_is_learned_from_once(
    staleness: int, concurrency: int, taught: str, tmp_path: Path
) -> None:
    rows = _run(tmp_path, taught, staleness=staleness, concurrency=concurrency)
    assert [row["step"] for row in rows] == list(range(4))
    assert all(row["staleness_max"] <= staleness for row in rows)
    assert any(row["staleness_max"] for row in rows) == bool(staleness)  # staleness occurs whenever it is allowed
    steps = [_learned_from(tmp_path, step) for step in range(4)]
    assert [len(episodes) for episodes in steps] == [16] * 4
    seen = [(t.meta["step"], t.group, t.member) for episodes in steps for t in episodes]
    assert len(set(seen)) == len(seen)
    first = [(t.group, t.member) for episodes in steps for t in episodes if t.meta["step"] == 0]
    assert len(first) == 16  # including the slow episodes


def test_the_learner_waits_for_a_slow_episode_only_at_the_staleness_bound(taught: str, tmp_path: Path) -> None:
    """Delay the end of an episode until three steps are done, and check that the fourth step waits for it."""
    seed = child_seed(0, "train") + 2  # starts before the first step, which takes two earlier groups
    sign = tmp_path / "trajectories" / "step-000002.jsonl.gz"
    rows = _run(tmp_path, taught, staleness=3, env_kwargs=json.dumps({"late": seed, "until": str(sign)}))
    assert [step for step in range(4) if any(t.seed == seed for t in _learned_from(tmp_path, step))] == [3]
    assert rows[3]["staleness_max"] == 3


def test_sampling_weights_change_only_between_steps(
    taught: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the sampler's weights change only between steps, when they become equal to the learner's weights."""
    seen: list[tuple[bool, bool]] = []
    moved = 0

    def watched(learner: Learner, *args: Any, **options: Any) -> dict[str, float]:
        nonlocal moved
        sampler, model = learner.policy.sampler, learner.policy.model
        before = [p.clone() for p in sampler.parameters()]
        learned = all(map(torch.equal, before, model.parameters()))
        metrics = reinforcement_step(learner, *args, **options)
        stayed = all(map(torch.equal, before, sampler.parameters()))
        moved += not all(map(torch.equal, before, model.parameters()))
        seen.append((learned, stayed))
        return metrics

    monkeypatch.setattr(async_trainer, "reinforcement_step", watched)
    _run(tmp_path, taught, steps=3, save_every=1000)
    assert seen == [(True, True)] * 3
    assert moved


def test_stale_samples_have_log_probs_at_the_sampling_temperature(taught: str, tmp_path: Path) -> None:
    """Train with a learning rate of zero, so that a stale token has the same log-prob when it is trained on."""
    rows = _run(tmp_path, taught, steps=3, temperature=0.7, lr=0.0, group_size=1)
    weights = [row["is_weight_max"] for row in rows if "is_weight_max" in row]
    assert weights
    assert weights == pytest.approx([1.0] * len(weights), abs=1e-3)


def test_groups_stay_complete_and_the_buffer_learns_how_long_each_step_waited(
    taught: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[tuple[float, float]] = []

    def adapt(_: StalenessBuffer, *, waiting: float, learning: float) -> None:
        times.append((waiting, learning))

    monkeypatch.setattr(StalenessBuffer, "adapt", adapt)
    rows = _run(tmp_path, taught, algorithm="grpo", group_size=4, staleness=1, steps=3)
    for (waiting, learning), row in zip(times, rows, strict=True):
        assert waiting == row["seconds_waiting"]
        assert 0 < learning <= row["seconds_learning"]
    for step in range(3):
        members: dict[tuple[int, int], list[int]] = {}
        for episode in read(tmp_path / "trajectories" / f"step-{step:06d}.jsonl.gz"):
            members.setdefault((episode.seed, episode.group), []).append(episode.member)
        assert all(sorted(found) == [0, 1, 2, 3] for found in members.values())
        assert len(members) == 4


def test_a_stopped_run_resumes(taught: str, tmp_path: Path) -> None:
    assert len(_run(tmp_path, taught, steps=1)) == 1
    assert [row["step"] for row in _run(tmp_path, taught, steps=2)] == [0, 1]

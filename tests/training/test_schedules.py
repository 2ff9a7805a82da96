"""Test the learning-rate schedule of runs that are continued, and how often weights are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palestra.engines.local.engine import LocalEngine
from palestra.training import train
from palestra.training.recipe import from_mapping
from palestra.training.run import TrainingRun
from tests.training.helpers import learner_of


def run(out: Path, **settings: Any) -> TrainingRun:
    small = {"episodes": 4, "max_tokens": 2, "horizon": "1", "eval_episodes": 1, "eval_every": 0, "warm_start": 0}
    config = {"env": "game:GuessTheNumber-v0-easy", "model": "default:0.1M", "out": str(out), "threads": 1}
    return train(from_mapping({**config, **small, **settings}))


def rates(done: TrainingRun) -> list[float]:
    return [row["lr"] for row in done.rows if "lr" in row]


def test_a_continued_run_keeps_its_learning_rate(tmp_path: Path) -> None:
    options: dict[str, Any] = {"lr": 1.0, "lr_schedule": "linear", "lr_warmup": 1, "lr_final": 0.2}
    first = rates(run(tmp_path / "a", steps=3, **options))
    assert first == pytest.approx([0.5, 1.0, 0.6])
    longer = rates(run(tmp_path / "a", steps=5, **options))
    assert longer[:3] == first
    assert longer[3:] == pytest.approx([0.2, 0.2])
    stated = learner_of(steps=3, lr_steps=5, **options)
    assert [stated.learning_rate(step) for step in range(3)] == pytest.approx([0.5, 1.0, 0.8])


def test_weights_are_published_once_per_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions: list[int] = []
    publish = LocalEngine.publish

    async def counted(engine: LocalEngine, weights: Any, version: int) -> None:
        versions.append(version)
        await publish(engine, weights, version)

    monkeypatch.setattr(LocalEngine, "publish", counted)
    played = run(tmp_path / "rl", steps=2, algorithm="reinforce", minibatches=4, epochs=2)
    assert versions == [1, 2, 3], "before the first step, and once after each step"
    versions.clear()
    settings = {"algorithm": "sft", "data": str(played.folder), "data_keep": "all", "batch": 1, "minibatches": 1}
    run(tmp_path / "sft", steps=4, **settings)
    assert len(versions) == 1, "after the last update, for the evaluation"

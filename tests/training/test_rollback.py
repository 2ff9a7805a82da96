"""Test that a run whose success rate falls restores earlier weights, and that a healthy run does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from palestra.training import train
from palestra.training.config import TrainConfig
from palestra.training.recipe import from_mapping
from palestra.training.rollback import Rollback, fell
from palestra.training.sync_trainer import SyncTrainer
from tests.training.helpers import learner_of

torch.set_num_threads(1)


def config_of(out: Path, model: str, **settings: Any) -> TrainConfig:
    small = {"steps": 3, "episodes": 8, "group_size": 1, "minibatches": 1, "eval_every": 1, "eval_episodes": 64}
    common = {"env": "game:GuessTheNumber-v0-easy", "out": str(out), "model": model, "max_tokens": 8, "save_every": 1}
    return from_mapping({**common, **small, "lr": 1e-9, **settings})


@pytest.fixture
def collapse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the second step replace the weights of the output layer with noise."""
    found = SyncTrainer.iteration

    async def broken(self: SyncTrainer, step: int) -> dict[str, Any]:
        row = await found(self, step)
        if step == 1:
            with torch.no_grad():
                self.learner.policy.model.get_output_embeddings().weight.normal_(generator=torch.manual_seed(0))
            await self.publish()
        return row

    monkeypatch.setattr(SyncTrainer, "iteration", broken)


@pytest.mark.usefixtures("collapse")
def test_a_collapsed_run_restores_earlier_weights(taught: str, tmp_path: Path) -> None:
    lines: list[str] = []
    run = train(config_of(tmp_path / "run", taught), log=lines.append)
    before, _, fallen, after = (row["eval_success"] for row in run.rows)
    assert fallen < before - 0.15
    assert [row.get("rollback", 0.0) for row in run.rows] == [0, 0, 1, 0]
    assert after > fallen + 0.15
    assert run.rows[3]["lr"] == pytest.approx(run.rows[2]["lr"] * 1.25 / 2), "half, after a rise by a quarter"
    (line,) = [line for line in lines if "Restored the weights" in line]
    assert "--rollback 0" in line
    free = train(config_of(tmp_path / "free", taught, rollback=0.0, eval_every=0))
    assert free.rows[-1]["eval_success"] < before - 0.15
    assert not (tmp_path / "free" / "best.pt").exists()

    # A run that is killed after the collapse restores the same weights when it is resumed.
    def die(line: str) -> None:
        if line.startswith("step 2/"):
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(config_of(tmp_path / "cut", taught), log=die)
    (tmp_path / "cut" / "best.pt").unlink()
    resumed = train(config_of(tmp_path / "cut", taught))
    assert [without_time(row) for row in resumed.rows] == [without_time(row) for row in run.rows]


def without_time(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if "second" not in name}


def test_the_newest_weights_that_are_about_as_good_as_the_best_are_restored(tmp_path: Path) -> None:
    learner = learner_of()
    weight = learner.policy.model.get_output_embeddings().weight
    rollback = Rollback(learner, tmp_path, errors=3.0)

    def observe(success: float, step: int) -> str | None:
        with torch.no_grad():
            weight.fill_(step)
        return rollback.observe(success, 256, step)

    assert observe(0.31, 0) is None
    assert observe(0.25, 5) is None, "more than one standard error below the best, less than three"
    assert observe(0.29, 10) is None
    assert observe(0.26, 15) is None, "compared with the best evaluation, not with the newest one that was kept"
    state, copied = rollback.state(), tmp_path / "checkpoint"
    copied.mkdir()
    shutil.copy(rollback.path, copied)
    message = observe(0.1, 20)
    assert message is not None
    assert "fell to 10.0% after step 20" in message
    assert "best evaluation (31.0%). Restored the weights after step 10 (29.0%)" in message
    assert (weight == 10).all()
    assert observe(0.5, 25) is None

    resumed = Rollback(learner, tmp_path, errors=3.0)
    resumed.load(state, copied)
    with torch.no_grad():
        weight.fill_(30)
    message = resumed.observe(0.1, 256, 30)
    assert message is not None
    assert "Restored the weights after step 10" in message
    assert (weight == 10).all()

    del state["rollback"]["best"]  # in older checkpoints, the weights are those of the best evaluation
    resumed.load(state, copied)
    message = resumed.observe(0.1, 256, 30)
    assert message is not None
    assert "best evaluation (29.0%)" in message


def test_a_healthy_run_keeps_its_weights(taught: str, tmp_path: Path) -> None:
    run = train(config_of(tmp_path / "run", taught, steps=1))
    assert not any("rollback" in row for row in run.rows)


def test_only_a_clear_fall_counts() -> None:
    assert not fell(0.3, 0.3, 256, 3.0)
    assert not fell(0.9, 0.85, 256, 3.0)
    assert fell(0.9, 0.6, 256, 3.0)
    assert fell(1.0, 0.9, 256, 3.0)
    assert not fell(1.0, 0.99, 256, 3.0)
    assert not fell(1.0, 0.75, 4, 3.0), "a few episodes prove nothing"
    rng = Random(1)

    def evaluation(rate: float) -> float:
        return sum(rng.random() < rate for _ in range(256)) / 256

    falls = 0
    for _ in range(20):  # healthy runs whose success rate rises from 30% to 95%
        best = 0.0
        for step in range(14):
            success = evaluation(0.3 + 0.05 * step)
            falls += fell(best, success, 256, 3.0)
            best = max(best, success)
    assert falls == 0

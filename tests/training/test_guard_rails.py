"""Test that diverging runs raise an error and keep their last good checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from palestra.core import Reset
from palestra.envs.games.guess_the_number import GuessTheNumber
from palestra.errors import BadValue, EngineFailed, TrainingDiverged
from palestra.optional import require
from palestra.training import train
from palestra.training.checkpoint import checkpoints
from palestra.training.config import TrainConfig
from palestra.training.learner import Learner
from palestra.training.recipe import from_mapping
from palestra.training.sync_trainer import SyncTrainer

ENV = "game:GuessTheNumber-v0-easy"


def _config(folder: Path, **settings: Any) -> TrainConfig:
    tiny = {"steps": 4, "episodes": 16, "concurrency": 16, "eval_episodes": 2, "max_tokens": 8}
    return from_mapping({"env": ENV, "out": str(folder), **tiny, "threads": 1, "save_every": 1, **settings})


def test_a_run_stops_when_the_kl_exceeds_its_limit(taught: str, tmp_path: Path) -> None:
    steep = {"lr": 5.0, "lr_schedule": "linear", "lr_warmup": 0, "epochs": 2, "minibatches": 2}
    free = {"target_kl": 0.0, "kl_backtrack": 0.0, "max_kl": 0.5}
    with pytest.raises(TrainingDiverged, match="above max_kl=0.5. Lower --lr"):
        train(_config(tmp_path, model=taught, **steep, **free))
    good = checkpoints(tmp_path)
    assert good, "a checkpoint must be saved before the first step"
    weights = torch.load(good[-1] / "trainer.pt", weights_only=True)
    assert weights["step"] == int(good[-1].name.removeprefix("step-"))


def test_nan_weights_stop_the_run(taught: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that sampling from NaN weights stops the run with an error about non-finite logits."""
    found = SyncTrainer.iteration

    async def poisoned(self: SyncTrainer, step: int) -> dict[str, Any]:
        if step == 1:
            with torch.no_grad():
                next(iter(self.learner.policy.model.parameters())).fill_(float("nan"))
        return await found(self, step)

    monkeypatch.setattr(SyncTrainer, "iteration", poisoned)
    with pytest.raises(EngineFailed, match="not finite; its weights may have diverged"):
        train(_config(tmp_path, model=taught))
    assert [path.name for path in checkpoints(tmp_path)] == ["step-0", "step-1"]


def test_a_nan_gradient_stops_the_run(taught: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Learner.backward

    def poisoned(self: Learner, loss: torch.Tensor) -> None:
        second = (tmp_path / "checkpoints" / "step-1").exists()
        found(self, loss * float("nan") if second else loss)

    monkeypatch.setattr(Learner, "backward", poisoned)
    with pytest.raises(TrainingDiverged, match="gradient norm is nan.*last checkpoint is intact"):
        train(_config(tmp_path, model=taught))
    good = checkpoints(tmp_path)
    assert [path.name for path in good] == ["step-0", "step-1"]
    saved = torch.load(good[-1] / "trainer.pt", weights_only=True)
    assert saved["step"] == 1


class NeedsExtra(GuessTheNumber):
    """Environment whose extra is not installed."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        require("palestra_missing_package", extra="babyai")
        return super().reset(seed=seed, options=options)


class Broken(GuessTheNumber):
    """Environment whose random player fails."""

    def sample_random_action(self) -> str:
        raise RuntimeError("no dice")


@pytest.mark.parametrize(
    ("env", "settings", "error", "words"),
    [
        ("NeedsExtra", {"warm_start": 4}, BadValue, r"warm start finished no .*pip install .*\[babyai\]'$"),
        ("NeedsExtra", {"warm_start": 0}, BadValue, r"the model finished no .*pip install .*\[babyai\]'$"),
        ("Broken", {"warm_start": 4}, EngineFailed, "RuntimeError.*no dice. Check sample_random_action .*--warm-start"),
    ],
)
def test_the_reason_why_no_episode_finished_is_reported(
    env: str, settings: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    tiny = {"model": "default:0.1M", "episodes": 4, "eval_episodes": 4, **settings}
    with pytest.raises(error, match=words):
        train(_config(tmp_path, env=f"tests.training.test_guard_rails:{env}", **tiny))


def test_a_batch_without_signal_is_reported_and_changes_nothing(tmp_path: Path) -> None:
    """Use an untrained model without a warm start, so that all games have the same return."""
    lines: list[str] = []
    run = train(_config(tmp_path, warm_start=0, steps=1), log=lines.append)
    assert run.rows[-1]["signal"] == 0.0
    assert "grad_norm" not in run.rows[-1]
    assert any("no learning signal" in line for line in lines)

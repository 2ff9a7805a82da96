"""Test that a run continues from the newest intact checkpoint if files in its folder are damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palestra.errors import BadValue
from palestra.training import train
from palestra.training.run import TrainingRun
from tests.training.test_sync_trainer import curve, tiny


def cut(name: str) -> Callable[[Path], None]:
    """Return a function that truncates a file in the newest checkpoint."""

    def truncate(run: Path) -> None:
        path = run / "checkpoints" / "step-2" / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return truncate


@pytest.fixture(scope="module")
def whole(taught: str, tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    return train(tiny(tmp_path_factory.mktemp("whole") / "run", steps=2, model=taught))


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "trainer": cut("trainer.pt"),
    "weights": cut("model.safetensors"),
    "manifest": cut("manifest.json"),
    "config": lambda run: (run / "checkpoints" / "step-2" / "config.json").unlink(),
    "folder": lambda run: shutil.rmtree(run / "checkpoints" / "step-2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGE)
def test_an_older_checkpoint_replaces_a_damaged_one(kind: str, whole: TrainingRun, taught: str, tmp_path: Path) -> None:
    run = shutil.copytree(whole.folder, tmp_path / "run")
    DAMAGE[kind](run)
    messages: list[str] = []
    again = train(tiny(run, steps=2, model=taught), log=messages.append)
    assert curve(again.rows) == curve(whole.rows)
    assert any("step-2 is damaged" in message for message in messages) == (kind != "folder")


def test_a_damaged_settings_file_is_written_again(whole: TrainingRun, taught: str, tmp_path: Path) -> None:
    run = shutil.copytree(whole.folder, tmp_path / "run")
    (run / "run.json").write_text('{"config": {')
    assert train(tiny(run, steps=2, model=taught)).rows == whole.rows  # finished, so nothing is played
    assert '"versions"' in (run / "run.json").read_text()
    with pytest.raises(BadValue, match="different settings"):
        train(tiny(run, steps=2, model=taught, lr=0.5))


def test_a_run_without_an_intact_checkpoint_is_not_deleted(whole: TrainingRun, taught: str, tmp_path: Path) -> None:
    run = shutil.copytree(whole.folder, tmp_path / "run")
    for state in run.glob("checkpoints/*/trainer.pt"):
        state.write_bytes(b"")
    with pytest.raises(BadValue, match="all checkpoints in .* are damaged; --overwrite .* starts over"):
        train(tiny(run, steps=2, model=taught))
    assert (run / "best" / "model.safetensors").exists()


def test_a_run_without_its_reference_model_is_not_continued_with_another_one(taught: str, tmp_path: Path) -> None:
    """A model from before the warm start, for example, would be a wrong reference."""
    settings = {"model": taught, "kl": 0.1, "save_every": 1}
    whole = train(tiny(tmp_path / "run", steps=1, **settings))
    missing = shutil.copytree(whole.folder, tmp_path / "missing")
    shutil.rmtree(missing / "start")
    with pytest.raises(BadValue, match=r"start, the model at the start of RL, is missing or damaged .*--overwrite"):
        train(tiny(missing, steps=2, **settings))
    shutil.copytree(whole.folder / "start", missing / "start")
    weights = missing / "start" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    with pytest.raises(BadValue, match="model.safetensors was changed or truncated"):
        train(tiny(missing, steps=2, **settings))
    weights.write_bytes(content)
    assert len(train(tiny(missing, steps=2, **settings)).rows) > len(whole.rows)

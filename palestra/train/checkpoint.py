"""Checkpoints: a folder each, in Hugging Face format plus the trainer's state; whole, or not there at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from palestra.errors import StoreFailed
from palestra.train.learner import Learner

STATE = "trainer.pt"


def save(learner: Learner, folder: Path, state: dict[str, Any]) -> None:
    """Write `folder` beside its old self, then swap: a kill at any moment leaves one whole checkpoint."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        learner.policy.model.save_pretrained(part)
        learner.policy.tokenizer.save_pretrained(part)
        critic = learner.policy.critic
        torch.save(
            {
                **state,
                "optimiser": learner.optimiser.state_dict(),
                "critic": None if critic is None else critic.state_dict(),
            },
            part / STATE,
        )
        for file in part.iterdir():
            _synced(file)
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        _synced(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as err:
        shutil.rmtree(part, ignore_errors=True)
        raise StoreFailed(f"the checkpoint {folder} could not be written: {err}. The one before it is whole.") from err


def load_state(learner: Learner, folder: Path) -> dict[str, Any]:
    """Optimiser and critic as they were; the rest of the state is returned. The weights were loaded with the model."""
    state: dict[str, Any] = torch.load(folder / STATE, map_location=learner.policy.device, weights_only=True)
    learner.optimiser.load_state_dict(state.pop("optimiser"))
    critic = state.pop("critic")
    if critic is not None and learner.policy.critic is not None:
        learner.policy.critic.load_state_dict(critic)
    return state


def checkpoints(folder: Path) -> list[Path]:
    """Those of a run that are whole, oldest first."""
    found = [path for path in (folder / "checkpoints").glob("step-*") if (path / STATE).exists()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def prune(folder: Path, keep: int) -> None:
    """Leave the newest `keep`."""
    for path in checkpoints(folder)[: -keep or None]:
        shutil.rmtree(path, ignore_errors=True)


def _synced(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
